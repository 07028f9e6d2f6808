"""The classifiers of :mod:`closecall.network`, which can also train on torch's devices."""

from __future__ import annotations

from typing import Any

import torch

from closecall.network import NetworkGrid
from closecall.network.classifier import ACCELERATED, ResidualMLPClassifier, ResidualMLPClassifierCV

from .network import train_grid

__all__ = ["ResidualMLPClassifier", "ResidualMLPClassifierCV", "check_device"]


def check_device(device: Any) -> None:
    """Raise ``ValueError`` if torch has no such device here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"device={device!r} is not available here: {error}; device='cpu' always is") from error


def _train(*data: Any, device: Any, **settings: Any) -> NetworkGrid:
    check_device(device)
    return train_grid(*data, device=device, **settings)


ACCELERATED["torch"] = _train
