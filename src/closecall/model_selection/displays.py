"""Plots in the style of scikit-learn's Display classes; matplotlib is imported only when a plot is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._names import Array
from ..linear.displays import _axes


@dataclass(eq=False)
class GuardDisplay:
    """A plot of the mean score of every contender and its standard deviation over the folds.

    ``means`` and ``spreads`` have shape (contenders,); the chosen contender is highlighted.
    """

    names: list[str]
    means: Array
    spreads: Array
    chosen: int
    title: str

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> GuardDisplay:
        """Plot a fitted :class:`GuardedClassifierCV`."""
        check_is_fitted(estimator, "guard_report_")
        results, comparison = estimator.cv_results_, estimator.guard_report_["comparison"]
        title = f"{estimator.best_name_} is chosen"
        if comparison is not None:
            gain, error = 100 * comparison["gain"], 100 * comparison["standard_error"]
            title += f": {comparison['challenger']} gains {gain:+.2f} ± {error:.2f} points"
        shown = results["name"], results["mean_test_score"], results["std_test_score"]
        return cls(*shown, estimator.best_index_, title).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> GuardDisplay:
        """Draw on ``ax`` or on a new figure, and set ``ax_`` and ``figure_``."""
        ax = _axes(ax)
        for place in range(len(self.names)):
            colour = "C0" if place == self.chosen else "gray"
            ax.errorbar(self.means[place], place, xerr=self.spreads[place], marker="o", capsize=3, color=colour)
        ax.set_yticks(range(len(self.names)), self.names)
        ax.invert_yaxis()
        ax.set(xlabel="cross-validated score (bars: standard deviation over folds)", title=self.title)
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False)
class ThresholdDisplay:
    """A plot of the mean cost at every threshold.

    ``cuts`` and ``costs`` have shape (thresholds,). The classifier's own threshold, the optimum and its interval are
    marked.
    """

    cuts: Array
    costs: Array
    default: float
    optimum: float
    interval: Array
    taken: bool

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> ThresholdDisplay:
        """Plot a fitted :class:`ExactThresholdClassifier` for two classes."""
        check_is_fitted(estimator, "threshold_")
        if not hasattr(estimator, "curve_"):
            raise ValueError("a threshold curve needs two classes; with more, there are offsets instead of a threshold")
        (cuts, costs), report = estimator.curve_, estimator.guard_report_
        edges = float(estimator.default_threshold_), float(estimator.optimum_)
        return cls(cuts, costs, *edges, estimator.threshold_interval_, report["taken"]).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> ThresholdDisplay:
        """Draw on ``ax`` or on a new figure, and set ``ax_`` and ``figure_``."""
        ax = _axes(ax)
        ax.step(self.cuts, self.costs, where="post", color="C0", label="mean cost, cross-fitted")
        if np.isfinite(self.interval).all():
            ax.axvspan(*self.interval, color="C0", alpha=0.15, label="95 % interval for the optimum")
        ax.axvline(self.default, linestyle="--", color="gray", label="the classifier's own threshold")
        ax.axvline(self.optimum, linestyle=":", color="C3", label="optimum" + ("" if self.taken else " (not used)"))
        ax.set(xlabel="threshold", ylabel="mean cost (0-1 errors unless costs were given)")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
