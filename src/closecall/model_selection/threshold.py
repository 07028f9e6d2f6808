"""Find the exact decision threshold with the fewest errors or the lowest cost on cross-fitted scores."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from .._names import Array, keep
from ..linear.splits import Pair
from ..paired import STRICT, Gain, check_guard, compare, paired, units_of
from ..panel import Panel, panel_of
from .folds import Referee, answers, check_input, equal_rows, fit_rows, fold_pairs
from .offsets import best_offsets, cut_points, moves, predicted, saved

OBJECTIVES = ("accuracy", "balanced_accuracy")
_OTHERS = 0.1  # share of predictions that may differ from the class with the largest score, as an SVC's do at ties
_BLOCK = 1 << 22  # entries in a block of resampled weights (32 MB)


class ExactThresholdClassifier(Referee):
    """Move the decision threshold of any classifier with scores to its exact optimum, if the gain is significant.

    Every example is scored by a model that was not trained on it. The sorted scores leave n + 1 positions for the
    threshold, and a running sum finds the best one in O(n log n) time, without a grid. The gain on each part of the
    rows is measured with the threshold that is best for the other parts, and is averaged over two divisions into folds.
    If the gain is below ``guard`` standard errors, the threshold is not moved. For data in blocks of time, the
    threshold that is best for all blocks must pass the same test, so a different threshold for every season does not
    count as a gain. With more than two classes, each class has an offset, which is moved in turn to its exact optimum.

    Parameters
    ----------
    estimator : classifier with ``decision_function`` or ``predict_proba``
    objective : {"accuracy", "balanced_accuracy"} or array (classes, classes)
        The score to maximise, or a matrix with the cost of each predicted class (column) for each true class (row).
    cv : int, splitter, iterable of (train, test) or None
        The folds for the cross-fitted scores, as in :class:`GuardedClassifierCV`.
    guard : float or None
        The number of standard errors that the gain must exceed; None means 2, and with 0 the threshold is always moved.
    n_bootstrap : int
        The number of resamples for the threshold's interval; 0 means no interval.
    n_jobs : int or None
        The number of fits to run in parallel.
    random_state : int, generator or None
        The seed for the resampling.

    Attributes
    ----------
    estimator_ : classifier
        The classifier, fitted on all rows.
    threshold_ : float or array (classes,)
        The threshold; higher scores predict ``classes_[1]``. With more than two classes, the offsets added to the
        scores.
    default_threshold_ : float or array (classes,)
        The classifier's own threshold.
    threshold_interval_ : array (2,) or (2, classes)
        The 95 % bootstrap interval for the optimum, whether or not the threshold was moved.
    optimum_ : float or array (classes,)
        The optimum on the cross-fitted scores, whether or not the threshold was moved.
    guard_report_ : dict
        The gain, its standard error, the required gain, and the ``reason`` for the decision in words.
    curve_ : tuple of arrays
        For two classes only: all thresholds and the objective at each of them, for :class:`ThresholdDisplay`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.r_[np.linspace(-2, 0, 100), np.linspace(0, 2, 100), np.linspace(-40, -20, 25)][:, None]
    >>> y = np.repeat([0, 1, 1], [100, 100, 25])
    >>> plain = LogisticRegression().fit(X, y)
    >>> moved = ExactThresholdClassifier(LogisticRegression()).fit(X, y)
    >>> round(plain.score(X, y), 2), round(moved.score(X, y), 2)
    (0.4, 0.56)
    """

    _fitted, _unfitted = "estimator_", "estimator"

    def __init__(
        self,
        estimator: Any,
        *,
        objective: Any = "accuracy",
        cv: Any = None,
        guard: float | None = None,
        n_bootstrap: int = 200,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **params: Any
    ) -> ExactThresholdClassifier:
        """Cross-fit the scores, find the threshold, estimate its gain, and fit the classifier on all rows.

        Parameters
        ----------
        X : any input that the classifier accepts, (samples, features)
        y : array (samples,)
        sample_weight : array (samples,), optional
            Weights that are passed to the classifier and used in the objective.
        groups : array (samples,) or (samples, 2), optional
            As in :class:`GuardedClassifierCV`.
        **params Passed to ``fit``, or routed if metadata routing is enabled.
        """
        guard = check_guard(self.guard, STRICT)
        X, y, mass = check_input(X, y, sample_weight)
        self.classes_, codes = np.unique(y, return_inverse=True)
        weights = np.ones(len(y)) if mass is None else mass
        costs = self._costs(codes, weights)
        kwargs = self._fit_params(mass, groups, params)["estimator"]
        self.estimator_ = clone(self.estimator).fit(X, y, **kwargs)
        self._method = _method(self.estimator_)
        _check_scores(self.estimator_, X, self._method)
        self.default_threshold_: Any = (
            np.zeros(len(self.classes_)) if len(self.classes_) > 2 else 0.5 * (self._method == "predict_proba")
        )
        found = [fold_pairs(self.cv, X, y, groups), fold_pairs(self.cv, X, y, groups, fresh=True)]
        divisions = [pairs for pairs in found if pairs]
        scores = [self._cross_fit(X, y, pairs, kwargs) for pairs in divisions]
        units = units_of(equal_rows(X), groups, divisions[0])
        gain = self._gain(scores, panel_of([test for _, test in divisions[-1]], units, weights), costs)
        self._settle(scores, gain, costs, weights, guard)
        return self

    def _settle(self, scores: list[Array], gain: Gain, costs: Array, weights: Array, guard: float) -> None:
        """Find the optimum and its interval, and decide whether to move the threshold."""
        pooled, stacked, heavy = _pooled(scores, costs, weights)
        offsets = best_offsets(pooled, stacked, heavy)
        outcome = compare("the moved threshold", "the classifier's own", gain, guard)
        moved = bool(outcome.taken) if guard > 0 else True
        self.optimum_: Any = offsets if len(self.classes_) > 2 else float(self.default_threshold_ - offsets[0])
        self.threshold_: Any = self.optimum_ if moved else self.default_threshold_
        self.threshold_interval_ = self._interval(pooled, stacked, heavy, offsets, len(scores))
        self.guard_report_: dict[str, Any] = {
            "guard": guard,
            **{name: value for name, value in asdict(outcome).items() if name not in ("challenger", "reference")},
            "taken": moved,
            "reason": str(outcome) if guard > 0 else "guard=0: the threshold is always moved",
        }
        if pooled.shape[1] == 1:
            self.curve_ = _curve(pooled[:, 0], stacked, heavy, float(self.default_threshold_))

    def _costs(self, codes: Array, mass: Array) -> Array:
        """Return the cost (samples, classes) of every prediction."""
        classes = len(self.classes_)
        if isinstance(self.objective, str):
            if self.objective not in OBJECTIVES:
                raise ValueError(
                    f"objective={self.objective!r} must be one of {', '.join(OBJECTIVES)}, or a matrix of costs"
                )
            matrix = 1.0 - np.eye(classes)
            if self.objective == "balanced_accuracy":
                # Scale the costs, not the masses: a rare example that counts ten times is still one observation.
                each = np.bincount(codes, mass, minlength=classes)
                share = 1 / np.where(each > 0, (each > 0).sum() * each, np.inf)  # a class without weight has no recall
                matrix = matrix * share[:, None] * mass.sum()
        else:
            matrix = np.asarray(self.objective, dtype=float)
            if matrix.shape != (classes, classes) or not np.isfinite(matrix).all():
                raise ValueError(
                    f"a cost matrix for {classes} classes must have shape ({classes}, {classes}) and finite entries, "
                    f"not {matrix.shape}: rows are true classes and columns are predictions, in the order of classes_"
                )
        return matrix[codes]

    def _cross_fit(self, X: Any, y: Array, pairs: list[Pair], kwargs: dict[str, Any]) -> Array:
        """Return out-of-fold scores (samples, scores), which are NaN for examples that are not in any test fold."""
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_scores_of)(self.estimator, X, y, pair, kwargs, self._method) for pair in pairs
        )
        scores = np.full((len(y), 1 if len(self.classes_) == 2 else len(self.classes_)), np.nan)
        for (_, test), part in zip(pairs, found, strict=True):
            scores[test] = part
        if len(self.classes_) == 2:
            scores -= self.default_threshold_
        return scores

    def _gain(self, scores: list[Array], panel: Panel, costs: Array) -> Gain:
        """Return the mean gain if each part of the rows uses the threshold that is best for the other parts."""
        gains, part = np.full((len(scores), len(panel.part)), np.nan), panel.part
        for number, may in enumerate(panel.may):
            others, rows = np.flatnonzero((part >= 0) & may[part]), np.flatnonzero(part == number)
            known = _pooled(scores, costs, panel.weights, others)
            if len(known[0]):
                offsets = best_offsets(*known)
                gains[:, rows] = [saved(table[rows], costs[rows], offsets) for table in scores]
        table = scores[0]
        unknown = ~np.isfinite(table).all(axis=1)
        tried = np.array([saved(table, costs, offsets) for offsets in moves(table)])
        tried[:, unknown] = np.nan
        found = paired(gains.mean(axis=0), panel.weights, panel.units, gains.var(axis=0))
        found = replace(found, chance=panel.chance(tried))
        if not panel.units.time or found.mean <= found.needed(STRICT):
            return found
        # Thresholds from blocks a season apart may be good but differ by season, so a common one must be a gain too.
        same = saved(table, costs, best_offsets(*_pooled([table], costs, panel.weights)))
        same[unknown] = np.nan
        single = paired(same, panel.weights, panel.units)
        return found if single.mean > single.needed(STRICT) else single

    def _interval(self, scores: Array, costs: Array, weights: Array, offsets: Array, repeats: int) -> Array:
        """Return the 95 % bootstrap interval for the optimum, with shape (2,) or (2, classes).

        An example is resampled together with all its scores.
        """
        shape = (2,) if scores.shape[1] == 1 else (2, scores.shape[1])
        if not self.n_bootstrap:
            return np.full(shape, np.nan)
        random, samples = check_random_state(self.random_state), len(scores) // repeats
        if samples * repeats != len(scores):  # the user's cv leaves rows out
            samples, repeats = len(scores), 1
        found = []
        size = max(1, _BLOCK // len(scores))
        for begin in range(0, self.n_bootstrap, size):
            count = min(size, self.n_bootstrap - begin)
            times = random.multinomial(samples, np.full(samples, 1 / samples), size=count)
            masses = np.tile(times, (1, repeats)) * weights
            if scores.shape[1] == 1:
                found.append(cut_points(scores[:, 0], costs, masses)[:, None])
            else:
                found.append(np.stack([best_offsets(scores, costs, mass, start=offsets, sweeps=2) for mass in masses]))
        ends = np.quantile(np.concatenate(found), [0.025, 0.975], axis=0)
        return ends if scores.shape[1] > 1 else np.sort(self.default_threshold_ - ends[:, 0])

    def _members(self) -> list[tuple[str, Any]]:
        if not is_classifier(self.estimator):
            raise ValueError(f"estimator must be a classifier, not {self.estimator!r}")
        return [("estimator", self.estimator)]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    def predict(self, X: Any) -> Array:
        """Return the predicted labels (samples,)."""
        check_is_fitted(self, "threshold_")
        if not self.guard_report_["taken"]:
            return self.estimator_.predict(X)
        scores = _table(self.estimator_, X, self._method)
        if len(self.classes_) == 2:
            return self.classes_[(scores[:, 0] > self.threshold_).astype(int)]
        return self.classes_[predicted(scores, self.threshold_)]

    @answers("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Return scores whose sign (two classes) or largest value (more classes) gives the prediction."""
        scores = _table(self._classifier, X, "decision_function")
        return scores[:, 0] - self.threshold_ if len(self.classes_) == 2 else scores + self.threshold_


def _method(model: Any) -> str:
    for name in ("decision_function", "predict_proba"):
        if hasattr(model, name):
            return name
    raise ValueError(f"{type(model).__name__} has no threshold to move: it lacks decision_function and predict_proba")


def _check_scores(model: Any, X: Any, method: str) -> None:
    """Raise an error if the class with the largest score is not the predicted one, as with one-vs-one scores."""
    if method != "decision_function" or len(model.classes_) < 3:
        return
    scores = np.asarray(model.decision_function(X))
    fits = scores.shape[1:] == (len(model.classes_),)
    if not fits or (model.classes_[scores.argmax(axis=1)] != model.predict(X)).mean() > _OTHERS:
        raise ValueError(
            f"{type(model).__name__} does not predict the class with the largest score: its "
            "decision_function must have one score for each class; an SVC needs decision_function_shape='ovr'"
        )


def _scores_of(estimator: Any, X: Any, y: Array, pair: Pair, kwargs: dict[str, Any], method: str) -> Array:
    train, test = pair
    return _table(fit_rows(estimator, X, y, train, kwargs), _safe_indexing(X, test), method)


def _table(model: Any, X: Any, method: str) -> Array:
    """Return scores (samples, 1) for two classes, or (samples, classes); probabilities are converted to logarithms."""
    scores = np.asarray(getattr(model, method)(X), dtype=float)
    if scores.ndim == 1:
        return scores[:, None]
    if scores.shape[1] == 2:
        return scores[:, 1:]
    return np.log(np.maximum(scores, 1e-300)) if method == "predict_proba" else scores


def _pooled(
    scores: list[Array], costs: Array, weights: Array, rows: Array | slice = slice(None)
) -> tuple[Array, Array, Array]:
    """Return the known scores of some rows in all divisions, with the costs and weights of these rows."""
    pooled, times = np.concatenate([table[rows] for table in scores]), len(scores)
    known = np.isfinite(pooled).all(axis=1)
    return pooled[known], np.tile(costs[rows], (times, 1))[known], np.tile(weights[rows], times)[known]


def _curve(scores: Array, costs: Array, weights: Array, default: float) -> tuple[Array, Array]:
    """Return all thresholds in ascending order (the first lies below all scores), and the mean cost at each."""
    order = np.argsort(scores)
    ranked = scores[order]
    passed = np.cumsum((weights * (costs[:, 0] - costs[:, 1]))[order])  # added by predicting negative
    last = np.append(ranked[1:] > ranked[:-1], True)  # a threshold cannot separate tied scores
    reach = max(ranked[-1] - ranked[0], 1.0, 1e-6 * np.abs(ranked).max())  # as far as the optimum may be below them
    cuts, totals = np.append(ranked[0] - reach, ranked[last]), np.append(0.0, passed[last])
    return cuts + default, (float(weights @ costs[:, 1]) + totals) / weights.sum()
