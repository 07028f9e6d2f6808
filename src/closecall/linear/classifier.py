"""Classifiers that minimise an aggregate loss with given hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._names import Array
from ..aggregates import Count, get_aggregate, warn_of_one
from ..objective import Problem
from .base import _InMemory


@dataclass(kw_only=True, eq=False, repr=False)
class _OneSetting(_InMemory):
    """Base class for classifiers with fixed hyperparameters."""

    loss: str = "logistic"
    k: Count = None
    alpha: float = 1.0
    max_iter: int = 1000
    tol: float = 1e-4
    exact_intercept: bool = False
    init: Any = "least_squares"
    warm_start: bool = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the classifier to X (samples, features), dense or sparse, and y (samples,), and return the classifier.

        The labels may be of any type. The columns are not scaled; put a StandardScaler before the classifier. A weight
        of 2 in ``sample_weight`` (samples,) has the same effect as two copies of the row, and a weight of 0 leaves the
        row out.
        """
        problem = Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)
        warn_of_one(self.aggregate, self.k)
        takes = get_aggregate(self.aggregate).takes
        if "m" in takes and self.m is None:
            raise ValueError(
                f"aggregate={self.aggregate!r} needs m, the number of largest losses to leave out; without m it equals "
                f"{'atk' if 'k' in takes else 'average'!r}"
            )
        old = (self.coef_, self.intercept_) if self.warm_start and hasattr(self, "coef_") else None
        training = self._check_fit(X, y, sample_weight)
        rows, features = 1 if len(training.classes) == 2 else len(training.classes), training.X.shape[1]
        init = old if old is not None and old[0].shape == (rows, features) else self.init
        if not isinstance(init, str):
            init = _check_init(init, rows, features)
        name, options = type(self).__name__, self._make_options(init=init)
        self._fit_setting(training, problem, options, exact=bool(self.exact_intercept), name=name)
        if self.verbose:
            print(f"[{name}] {int(np.max(self.n_iter_))} steps, k={self.k_:g} of {training.mass.sum():g}, "
                  f"{self.support_.size} close calls, converged: {self.converged_}")  # fmt: skip
        return self


def _check_init(init: Any, rows: int, features: int) -> tuple[Array, Array]:
    try:
        coef, intercept = np.atleast_2d(np.asarray(init[0], float)), np.atleast_1d(np.asarray(init[1], float))
    except (TypeError, ValueError, IndexError, KeyError):
        coef = intercept = np.empty(0)
    if coef.shape != (rows, features) or intercept.shape != (rows,):
        raise ValueError(
            f"init must be 'least_squares', 'zeros' or (coef, intercept) with shapes ({rows}, {features}) and ({rows},)"
        )
    return coef, intercept


@dataclass(kw_only=True, eq=False, repr=False)
class AggregateLossClassifier(_OneSetting):
    """Linear classifier that minimises any aggregate of any individual loss.

    The objective is ``sum of weighted losses + alpha / 2 * ||w||^2``; with ``aggregate="average"`` and the logistic
    loss, it equals the objective of scikit-learn's LogisticRegression with ``C = 1 / alpha``.

    Parameters
    ----------
    loss : str
        ``logistic``, ``hinge``, ``squared_hinge``, ``ramp``, ``modified_huber``, ``focal``, ``sigmoid`` or
        ``generalized_cross_entropy``.
    aggregate : str
        ``average``, ``maximal``, ``top``, ``atk``, ``close``, ``close_decay``, ``ranked_range``, ``trimmed``, or a
        member of a family such as ``tilted(-2)`` (:mod:`closecall.families`).
    k : int, float or None
        How many examples the aggregate uses: a count, a fraction in (0, 1] of the training mass, or None for all. The
        integer 1 means one example; the float 1.0 means all examples and triggers a warning. Used only by ``top``,
        ``atk``, ``close``, ``close_decay`` and ``ranked_range``.
    alpha : float
        The strength of the L2 penalty (>= 0).
    m : int, float or None
        How many of the largest losses ``ranked_range`` and ``trimmed`` leave out; required by these two aggregates and
        ignored by all others.
    max_iter : int
        With ``solver="path"``, the maximum number of Newton steps at each cut of a close aggregate; more than fifty are
        rarely needed. Otherwise, the number of steps in a run; if k decays, the run has three equal parts. A fit that
        has not converged by then continues until it has a certificate, but for at most about as many additional steps.
    tol : float
        A fit has converged if its certificate ``gap_`` is at most this value; otherwise a ``ConvergenceWarning`` is
        issued.
    solver : {"path", "algorithm1"}
        How to minimise an aggregate that selects examples: as a sum of clipped losses along a path of decreasing cuts,
        or with the steps of the paper's Algorithm 1. Algorithm 1 is always used for sparse tables, tables with more
        than 256 columns, jointly learnt classes, and any ``init`` other than least squares. For 80,000 or more rows,
        the path is followed on a sample, and all rows are used only at the end.
    n_starts : int or None
        The number of starts for a path: the first uses the actual masses of the rows, the second leaves out the most
        extreme rows, and the others use random masses. The result with the fewest training errors is kept. None means
        ten starts, or fewer (but at least two) if there are more than 1,000 rows or many columns.
    fit_intercept, penalize_intercept : bool
        Whether the model has an intercept, and whether alpha penalises it like the weights.
    exact_intercept : bool
        Whether to move the fitted intercept to the exact minimum of the training 0-1 error, in O(n log n) time.
    class_weight : dict, "balanced" or None
        Class weights, which multiply the sample weights.
    multiclass : {"ovr", "top_two", "softmax"}
        How to handle more than two classes: each against the rest, jointly with a loss on the margin between the score
        of the true class and the best other score, or jointly with the cross-entropy of the softmax, which requires the
        logistic loss. The close-k classifiers use ``"top_two"`` by default.
    calibration : {"sigmoid", "isotonic"} or None
        How to fit probabilities on held-out folds. Without calibration, only logistic regression (the average of the
        logistic loss) has ``predict_proba``.
    init : {"least_squares", "zeros"} or (coef, intercept)
        The starting point of the optimisation.
    warm_start : bool
        Whether to start from the parameters of the last fit if they have the right shape.
    random_state : int, RandomState or None
        The seed for the calibration folds; the fit itself is deterministic.
    verbose : int
        If above 0, one line is printed per fit.

    Attributes
    ----------
    coef_ : array (1, features) or (classes, features)
    intercept_ : array (1,) or (classes,)
    classes_ : array (classes,)
    n_iter_ : array
        The number of steps for each problem, including those needed for a certificate.
    gap_ : array
        The certificate of each problem, relative to its objective. If the loss and the aggregate are convex, the
        objective is at most this far above its minimum. Otherwise, the objective could fall by at most this much if the
        weights of the examples were held at their final values. Examples at the edge of the selection count as tied if
        their losses differ by at most ``2 * tol`` times the objective per unit of selected mass.
    converged_ : bool
        Whether every gap is at most ``tol``.
    k_ : float
        The value of k as a mass.
    support_ : array
        The training rows that have positive weight at the solution (the close calls).
    n_features_in_, feature_names_in_
        The same as in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(200, n_features=5, flip_y=0.1, random_state=0)
    >>> model = AggregateLossClassifier(loss="squared_hinge", aggregate="close", k=20).fit(X, y)
    >>> model.k_, model.support_.size, round(model.score(X, y), 2) > 0.85
    (20.0, 20, True)
    """

    aggregate: str = "average"
    m: Count = None


@dataclass(kw_only=True, eq=False, repr=False)
class CloseKClassifier(_OneSetting):
    """Linear classifier that minimises the close-k loss: it learns from the examples nearest the decision boundary.

    Training starts as plain logistic regression and gradually narrows to the k close calls, as in the paper's Algorithm
    1. This is :class:`AggregateLossClassifier` with ``aggregate="close_decay"`` and defaults that work without tuning.

    Parameters
    ----------
    k : int, float or None
        How many examples to use at the end of training: a count, a fraction in (0, 1] of the training mass, or None for
        all.
    alpha, loss, max_iter, tol, solver, n_starts, fit_intercept, penalize_intercept, exact_intercept, class_weight, \
multiclass, calibration, init, warm_start, random_state, verbose
        The same as in :class:`AggregateLossClassifier`.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, gap_, converged_, k_, support_, n_features_in_, feature_names_in_
        The same as in :class:`AggregateLossClassifier`.

    Examples
    --------
    Four distant, mislabelled examples tilt the boundary of the average loss, but not that of close-k.

    >>> X = np.concatenate([np.linspace(-2, 0, 100), np.linspace(0, 2, 100), [-30] * 4])[:, None]
    >>> y = np.repeat(["no", "yes", "yes"], [100, 100, 4])
    >>> average, close = AggregateLossClassifier().fit(X, y), CloseKClassifier().fit(X, y)
    >>> round(average.score(X, y), 2), round(close.score(X, y), 2)
    (0.66, 0.98)
    """

    aggregate: ClassVar[str] = "close_decay"
    m: ClassVar[None] = None
    k: Count = 0.1
    max_iter: int = 300
    multiclass: str = "top_two"
