"""Plots that follow scikit-learn's Display convention; matplotlib is imported only when a plot is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._names import Array
from ..aggregates import get_aggregate
from .fitting import codes_of, scores_of


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("drawing needs matplotlib: pip install 'closecall[plots]'") from None
    return plt.subplots()[1]


@dataclass(eq=False)
class KPathDisplay:
    """A plot of the cross-validated score against k, with its spread over the folds, compared with `average`.

    ``ks`` contains fractions of the training mass in ascending order. ``means`` and ``spreads`` contain, for each k and
    its best alpha, the mean and standard deviation of the score over the folds. ``baseline`` is the best mean score of
    `average`, and ``chosen`` is the chosen k as a fraction of the training mass (1 for `average`).

    Examples
    --------
    >>> from closecall import CloseKClassifierCV
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(120, random_state=0)
    >>> model = CloseKClassifierCV(alphas=[1.0], ks=[0.1, 0.5], guard=0).fit(X, y)
    >>> KPathDisplay(*KPathDisplay.path(model)).ks.tolist()
    [0.1, 0.5]
    """

    ks: Array
    means: Array
    spreads: Array
    baseline: float
    chosen: float

    @staticmethod
    def path(estimator: Any) -> tuple[Array, Array, Array, float, float]:
        """Return the arguments of the display: for each k, the best setting among those scored on the most folds."""
        check_is_fitted(estimator, "cv_results_")
        results, total = estimator.cv_results_, estimator.n_training_mass_
        means, folds, raw = results["mean_test_score"], results["n_folds"], results["param_k"]
        # An int is a count of examples, a float up to 1 a fraction, and None (stored as NaN) means all of them.
        counts = np.array([isinstance(params["k"], int) for params in results["params"]])
        ks = np.where(counts | (raw > 1), raw / total, np.where(np.isnan(raw), 1.0, raw))
        plain = np.array([get_aggregate(name).plain for name in results["param_aggregate"]])
        ran = ~plain & (folds > 0)
        if not ran.any():
            raise ValueError("the search has no setting with a k; there is no path to draw")
        order = np.lexsort((-means, -folds, ks, ~ran))[: ran.sum()]
        best = order[np.unique(ks[order], return_index=True)[1]]
        baseline = float(np.nanmax(means[plain]))
        return ks[best], means[best], results["std_test_score"][best], baseline, float(ks[estimator.best_index_])

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> KPathDisplay:
        """Draw the path of a fitted :class:`closecall.CloseKClassifierCV`."""
        return cls(*cls.path(estimator)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> KPathDisplay:
        """Draw on ``ax`` or on a new figure, and set ``ax_`` and ``figure_``."""
        ax = _axes(ax)
        ax.errorbar(self.ks, self.means, yerr=self.spreads, marker="o", capsize=3, label="k, best alpha")
        ax.axhline(self.baseline, linestyle="--", color="gray", label="average")
        ax.axvline(self.chosen, linestyle=":", color="C3", label="chosen")
        ax.set(xscale="log", xlabel="k / n", ylabel="cross-validated score")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False)
class BoundaryDisplay:
    """A plot of the decision boundary of a classifier with two features, with rings around its close calls.

    ``codes`` contains the position of each row's label in ``classes``, and ``support`` contains the rows of X that are
    close calls. ``grid`` contains the coordinates and predicted codes of a mesh: xx, yy and zz (rows, columns).
    """

    X: Array
    codes: Array
    classes: Array
    support: Array
    grid: tuple[Array, Array, Array]

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, resolution: int = 200, ax: Any = None
    ) -> BoundaryDisplay:
        """Draw a fitted classifier and its training data.

        The rows of X (samples, 2) and y (samples,) must be in the original order. The mesh has
        ``resolution`` points along each side.
        """
        check_is_fitted(estimator, "coef_")
        values = np.asarray(X, dtype=float)
        if values.ndim != 2 or values.shape[1] != 2:
            raise ValueError(f"a boundary can only be drawn for two features, but X has shape {values.shape}")
        if estimator.support_.size and estimator.support_.max() >= len(values):
            raise ValueError("X has fewer rows than the estimator was fitted on; pass the training rows")
        low, high = values.min(axis=0), values.max(axis=0)
        pad = 0.05 * np.where(high > low, high - low, 1)
        sides = [np.linspace(*ends, resolution) for ends in zip(low - pad, high + pad, strict=True)]
        xx, yy = np.meshgrid(*sides)
        scores = scores_of(np.column_stack([xx.ravel(), yy.ravel()]), estimator.coef_, estimator.intercept_)
        grid = xx, yy, codes_of(scores).reshape(xx.shape)
        codes = np.searchsorted(estimator.classes_, np.asarray(y))
        return cls(values, codes, estimator.classes_, estimator.support_, grid).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> BoundaryDisplay:
        """Draw on ``ax`` or on a new figure, and set ``ax_`` and ``figure_``."""
        ax = _axes(ax)
        levels = np.arange(len(self.classes) + 1) - 0.5
        ax.contourf(*self.grid, levels=levels, colors=[f"C{code}" for code in range(len(self.classes))], alpha=0.15)
        for code, label in enumerate(self.classes):
            rows = self.codes == code
            ax.scatter(*self.X[rows].T, s=12, color=f"C{code}", label=str(label))
        ax.scatter(*self.X[self.support].T, s=60, facecolors="none", edgecolors="black", label="close calls")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
