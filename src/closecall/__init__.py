"""closecall: classifiers that minimise the loss of the close calls."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .aggregates import AGGREGATES, get_aggregate
from .losses import LOSSES, get_loss
from .objective import Problem

if TYPE_CHECKING:
    from .linear import (
        AggregateLossClassifier,
        AggregateLossClassifierCV,
        BoundaryDisplay,
        CloseKClassifier,
        CloseKClassifierCV,
        KPathDisplay,
        diagnose,
        load_model,
    )

__all__ = [
    "AGGREGATES",
    "LOSSES",
    "AggregateLossClassifier",
    "AggregateLossClassifierCV",
    "BoundaryDisplay",
    "CloseKClassifier",
    "CloseKClassifierCV",
    "KPathDisplay",
    "Problem",
    "diagnose",
    "get_aggregate",
    "get_loss",
    "load_model",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The classifiers need scikit-learn, which loads pandas where it is installed: fetched when first asked for.
    if name in __all__:
        return getattr(import_module("closecall.linear"), name)
    raise AttributeError(f"module 'closecall' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
