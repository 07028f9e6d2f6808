"""Plots in scikit-learn's Display convention; matplotlib is imported only when one is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._names import Array
from ..aggregates import get_aggregate


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("drawing needs matplotlib: pip install 'closecall[plots]'") from None
    return plt.subplots()[1]


class KPathDisplay:
    """Cross-validated score over k, with its spread over the folds, compared with `average`.

    Parameters
    ----------
    ks : array (places,)
        k as fractions of the training mass, ascending.
    means, spreads : arrays (places,)
        Mean and standard deviation over the folds of the best alpha of each k.
    baseline : float
        The best mean of `average`.
    chosen : float
        The k that the search chose, as a fraction; 1 for `average`.

    Examples
    --------
    >>> from closecall import CloseKClassifierCV
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(120, random_state=0)
    >>> model = CloseKClassifierCV(alphas=[1.0], ks=[0.1, 0.5], guard=0).fit(X, y)
    >>> KPathDisplay(*KPathDisplay.path(model)).ks.tolist()
    [0.1, 0.5]
    """

    def __init__(self, ks: Array, means: Array, spreads: Array, baseline: float, chosen: float) -> None:
        self.ks = ks
        self.means = means
        self.spreads = spreads
        self.baseline = baseline
        self.chosen = chosen

    @staticmethod
    def path(estimator: Any) -> tuple[Array, Array, Array, float, float]:
        """Build the display from a fitted search: for each k, the best setting that ran on the most folds."""
        check_is_fitted(estimator, "cv_results_")
        results = estimator.cv_results_
        total = estimator.n_training_mass_
        raw = results["param_k"]
        ks = np.where(np.isnan(raw), 1.0, np.where(raw > 1, raw / total, raw))
        # A whole number counts examples: 1 is one example, 1.0 all of them.
        counts = np.array([isinstance(params["k"], int) for params in results["params"]])
        ks = np.where(counts, raw / total, ks)
        plain = np.array([get_aggregate(name).plain for name in results["param_aggregate"]])
        ran = results["n_folds"] > 0
        best = []
        for k in np.unique(ks[~plain & ran]):
            places = np.flatnonzero(~plain & ran & (ks == k))
            best.append(places[np.lexsort((-results["mean_test_score"][places], -results["n_folds"][places]))[0]])
        if not best:
            raise ValueError("the search has no setting with a k; there is no path to draw")
        baseline = float(np.nanmax(results["mean_test_score"][plain]))
        spread = results["std_test_score"][best]
        return ks[best], results["mean_test_score"][best], spread, baseline, float(ks[estimator.best_index_])

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> KPathDisplay:
        """Draw the path of a fitted :class:`closecall.CloseKClassifierCV`."""
        return cls(*cls.path(estimator)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> KPathDisplay:
        """Draw on ``ax``, or on a new figure; sets ``ax_`` and ``figure_``."""
        ax = _axes(ax)
        ax.errorbar(self.ks, self.means, yerr=self.spreads, marker="o", capsize=3, label="k, best alpha")
        ax.axhline(self.baseline, linestyle="--", color="gray", label="average")
        ax.axvline(self.chosen, linestyle=":", color="C3", label="chosen")
        ax.set(xscale="log", xlabel="k / n", ylabel="cross-validated score")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


class BoundaryDisplay:
    """The decision boundary of a classifier with two features, with its close calls ringed.

    Parameters
    ----------
    X : array (samples, 2)
    codes : array (samples,)
        Positions of the labels in ``classes``.
    classes : array (classes,)
    support : array
        Rows of X that are close calls.
    grid : tuple of arrays (rows, columns)
        Coordinates and predicted codes of a mesh: xx, yy, zz.
    """

    def __init__(
        self, X: Array, codes: Array, classes: Array, support: Array, grid: tuple[Array, Array, Array]
    ) -> None:
        self.X = X
        self.codes = codes
        self.classes = classes
        self.support = support
        self.grid = grid

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, resolution: int = 200, ax: Any = None
    ) -> BoundaryDisplay:
        """Draw a fitted classifier on the data it was fitted on.

        Parameters
        ----------
        estimator : fitted classifier of this package
        X : array (samples, 2)
            The training rows in their original order: ``support_`` refers to them.
        y : array (samples,)
        resolution : int
            Points of the mesh along each side.
        ax : matplotlib axes, optional
        """
        check_is_fitted(estimator, "coef_")
        values = np.asarray(X, dtype=float)
        if values.ndim != 2 or values.shape[1] != 2:
            raise ValueError(f"a boundary can be drawn for two features only, but X has shape {values.shape}")
        if estimator.support_.size and estimator.support_.max() >= len(values):
            raise ValueError("X has fewer rows than the estimator was fitted on; pass the training rows")
        low, high = values.min(axis=0), values.max(axis=0)
        pad = 0.05 * np.where(high > low, high - low, 1)
        sides = [np.linspace(*ends, resolution) for ends in zip(low - pad, high + pad, strict=True)]
        xx, yy = np.meshgrid(*sides)
        codes = np.searchsorted(estimator.classes_, np.asarray(y))
        scores = np.column_stack([xx.ravel(), yy.ravel()]) @ estimator.coef_.T + estimator.intercept_
        zz = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        grid = (xx, yy, zz.reshape(xx.shape))
        return cls(values, codes, estimator.classes_, estimator.support_, grid).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> BoundaryDisplay:
        """Draw on ``ax``, or on a new figure; sets ``ax_`` and ``figure_``."""
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
