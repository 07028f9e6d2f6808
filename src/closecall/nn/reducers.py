"""Reducers: per-example losses -> one number, as modules that store the settings of the functions."""

from __future__ import annotations

from typing import Any, ClassVar

import torch  # noqa: F401

from closecall.aggregates import Count

from .base import Reducer
from .close import CloseK
from .mining import HardNegatives, Tilted
from .spectra import Spectrum

__all__ = [
    "Average",
    "AverageTopK",
    "CloseK",
    "HardNegatives",
    "Maximal",
    "RankedRange",
    "Reducer",
    "Spectrum",
    "Tilted",
    "TopK",
    "Trimmed",
]


class Average(Reducer):
    """Every loss counts.

    Examples
    --------
    >>> Average()(torch.tensor([1.0, 3.0])).item()
    2.0
    """

    aggregate = "average"


class Maximal(Reducer):
    """The largest loss.

    Examples
    --------
    >>> Maximal()(torch.tensor([1.0, 3.0])).item()
    3.0
    """

    aggregate = "maximal"


class TopK(Reducer):
    """The k-th largest loss alone.

    Examples
    --------
    >>> TopK(k=2)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.0
    """

    aggregate = "top"


class AverageTopK(Reducer):
    """The k largest losses (Fan et al. 2017), or all above a threshold: online hard example mining.

    Parameters
    ----------
    k : int, float or None
        How many at most.
    min_loss : float, optional
        Select only losses above this value ...
    min_kept : int, float or None
        ... but at least so many. The convention of semantic segmentation: a probability threshold p is
        ``min_loss=-log(p)``.
    temperature : float, optional
        Select softly, with this width (:mod:`closecall.nn.soft`).
    dim, nonfinite, reduction, group
        As for every :class:`Reducer`.

    Examples
    --------
    >>> AverageTopK(k=2)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.5
    >>> AverageTopK(min_loss=2.5, min_kept=2)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.5
    """

    aggregate = "atk"
    more: ClassVar[dict[str, Any]] = {"min_loss": None, "min_kept": 1, "temperature": None}

    def __init__(
        self,
        k: Count = None,
        *,
        min_loss: float | None = None,
        min_kept: Count = 1,
        temperature: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(k, min_loss=min_loss, min_kept=min_kept, temperature=temperature, **options)


class RankedRange(Reducer):
    """The losses ranked m+1 to k from the largest down (Hu et al. 2020); softly with ``temperature``.

    Examples
    --------
    >>> RankedRange(k=2, m=1)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.0
    """

    aggregate = "ranked_range"
    more: ClassVar[dict[str, Any]] = {"temperature": None}


class Trimmed(Reducer):
    """All but the m largest losses; softly with ``temperature``.

    Examples
    --------
    >>> Trimmed(m=1)(torch.tensor([1.0, 3.0, 2.0])).item()
    1.5
    """

    aggregate = "trimmed"
    more: ClassVar[dict[str, Any]] = {"temperature": None}
