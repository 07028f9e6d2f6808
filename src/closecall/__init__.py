"""closecall: classifiers trained on the examples nearest the decision boundary."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aggregates import AGGREGATES, get_aggregate
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
    from .losses import LOSSES, get_loss
    from .objective import Problem
    from .preprocessing import SquashingScaler
    from .table.check import check_rows
    from .table.comparison import compare

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
    "SquashingScaler",
    "check_rows",
    "compare",
    "diagnose",
    "get_aggregate",
    "get_loss",
    "load_model",
]
__version__ = "0.2.0.dev0"
#: The module of each name that is not in ``linear``.
_CORE = {
    "AGGREGATES": "aggregates", "LOSSES": "losses", "Problem": "objective", "get_aggregate": "aggregates",
    "get_loss": "losses", "SquashingScaler": "preprocessing",
    "check_rows": "table.check", "compare": "table.comparison",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported on first use: the classifiers need scikit-learn, which loads pandas if it is installed, and the command
    # must handle signals before anything large is loaded.
    if name in _CORE.values():
        return import_module(f"closecall.{name}")
    if name in __all__:
        return getattr(import_module(f"closecall.{_CORE.get(name, 'linear')}"), name)
    raise AttributeError(f"module 'closecall' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
