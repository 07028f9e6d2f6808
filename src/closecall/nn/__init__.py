"""closecall for PyTorch (extra ``torch``): reducers for any training loop, and the paper's network."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError('closecall.nn needs PyTorch: pip install "closecall[torch]"') from error

from closecall.network import NetworkGrid, ResidualMLPClassifier, ResidualMLPClassifierCV

from . import functional
from .base import Reducer
from .close import CloseK
from .layers import ResidualMLP
from .losses import logit_losses, margins
from .modules import (
    AggregateLoss,
    AverageLoss,
    AverageTopKLoss,
    CloseKLoss,
    HardNegativesLoss,
    MaximalLoss,
    RankedRangeLoss,
    SpectrumLoss,
    TiltedLoss,
    TopKLoss,
    TrimmedLoss,
)
from .network import train_grid
from .reducers import (
    Average,
    AverageTopK,
    HardNegatives,
    Maximal,
    RankedRange,
    Spectrum,
    Tilted,
    TopK,
    Trimmed,
)
from .schedule import CountSchedule, KDecay

__all__ = [
    "AggregateLoss",
    "Average",
    "AverageLoss",
    "AverageTopK",
    "AverageTopKLoss",
    "CloseK",
    "CloseKLoss",
    "CountSchedule",
    "HardNegatives",
    "HardNegativesLoss",
    "KDecay",
    "Maximal",
    "MaximalLoss",
    "NetworkGrid",
    "RankedRange",
    "RankedRangeLoss",
    "Reducer",
    "ResidualMLP",
    "ResidualMLPClassifier",
    "ResidualMLPClassifierCV",
    "Spectrum",
    "SpectrumLoss",
    "Tilted",
    "TiltedLoss",
    "TopK",
    "TopKLoss",
    "Trimmed",
    "TrimmedLoss",
    "functional",
    "logit_losses",
    "margins",
    "train_grid",
]
