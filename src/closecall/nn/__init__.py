"""closecall for PyTorch: reducers for any training loop, and the paper's network (extra ``torch``)."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError('closecall.nn needs PyTorch: pip install "closecall[torch]"') from error

from . import functional
from .losses import logit_losses, margins
from .modules import (
    AggregateLoss,
    AverageLoss,
    AverageTopKLoss,
    CloseKLoss,
    MaximalLoss,
    RankedRangeLoss,
    TopKLoss,
    TrimmedLoss,
)
from .reducers import Average, AverageTopK, CloseK, Maximal, RankedRange, Reducer, TopK, Trimmed
from .schedule import KDecay

__all__ = [
    "AggregateLoss",
    "Average",
    "AverageLoss",
    "AverageTopK",
    "AverageTopKLoss",
    "CloseK",
    "CloseKLoss",
    "KDecay",
    "Maximal",
    "MaximalLoss",
    "RankedRange",
    "RankedRangeLoss",
    "Reducer",
    "TopK",
    "TopKLoss",
    "Trimmed",
    "TrimmedLoss",
    "functional",
    "logit_losses",
    "margins",
]
