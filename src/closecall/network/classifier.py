"""The paper's network as scikit-learn classifiers: with fixed settings, or with a cross-validated search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv, train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._names import Array, keep
from ..aggregates import Count, check_mass, get_aggregate, resolve_count, warn_of_one
from ..objective import Problem
from .grid import NetworkGrid, NetworkProgress, train_grid

#: Functions that train on devices other than the CPU; :mod:`closecall.nn` registers its own on import.
ACCELERATED: dict[str, Callable[..., Any]] = {}
_CHOSEN = ("aggregate", "k", "alpha", "m")
#: Parameters that are passed to :func:`train_grid` unchanged.
_PASSED = ("max_iter", "hidden", "learning_rate", "penalize_intercept", "patience", "callback")


class _NetworkClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Methods that both classifiers share: input checks, training by :func:`train_grid`, and prediction."""

    classes_: Array
    network_: NetworkGrid

    def _check(self, X: Any, y: Any, sample_weight: Any) -> tuple[Array, Array, Array]:
        # Returns X as floats, y as class numbers, and masses. A class without mass does not count.
        with np.errstate(over="ignore", invalid="ignore"):  # the sum that detects NaN may overflow
            X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        mass = np.ones(len(X)) if sample_weight is None else check_mass(sample_weight, len(X))
        self.classes_ = np.unique(y[mass > 0])
        if len(self.classes_) < 2:
            raise ValueError(f"y contains only one class ({self.classes_[0]!r}); a classifier needs two")
        return X, np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1), mass

    def _train(
        self,
        X: Array,
        codes: Array,
        mass: Array,
        problems: Sequence[Problem],
        seed: int | Sequence[int],
        validation: tuple[Array, Array] | None = None,
    ) -> NetworkGrid:
        binary, more = len(self.classes_) == 2, {name: getattr(self, name) for name in _PASSED}
        if binary:
            codes = 2 * codes - 1
            validation = None if validation is None else (validation[0], 2 * validation[1] - 1)
        more |= {"classes": None if binary else len(self.classes_), "validation": validation}
        return trainer(self.device)(X, codes, problems, seed=seed, sample_weight=mass, **more)

    def decision_function(self, X: Any) -> Array:
        """Return scores (samples,), positive for the second class, or (samples, classes) for more than two classes."""
        check_is_fitted(self)
        with np.errstate(over="ignore", invalid="ignore"):
            X = validate_data(self, X, dtype=np.float64, reset=False)
            scores = np.ascontiguousarray(self.network_.scores(X)[0].T)
        if not np.isfinite(scores).all():
            raise ValueError("the scores of some rows of X are not finite; scale the features as in training")
        return scores

    def predict(self, X: Any) -> Array:
        """Return labels (samples,)."""
        scores = self.decision_function(X)  # raises an error before a fit, when there are no classes
        return self.classes_[chosen(scores)]


def chosen(scores: Array) -> Array:
    """Return the class numbers (samples,) predicted from scores (samples,) or (samples, classes)."""
    return (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)


def _counts(name: str, ks: Sequence[Count], ms: Sequence[Count], smallest: float) -> list[tuple[Count, Count]]:
    """Return the pairs (k, m) for which an aggregate selects at least one example in the smallest fold."""
    takes = get_aggregate(name).takes
    ks = ks if "k" in takes else [None]
    if "m" not in takes:
        return [(k, None) for k in ks]
    pairs = [
        (k, m) for k, m in product(ks, ms) if resolve_count(k, smallest) > resolve_count(m, smallest, name="m", low=0)
    ]
    if not pairs:
        raise ValueError(f"every m in ms={ms!r} leaves no examples with ks={ks!r}; {name} needs m < k")
    return pairs


def trainer(device: str) -> Callable[..., Any]:
    """Return the function that trains a grid on a device: with the compiled kernel on ``"cpu"``, otherwise in torch."""
    if device == "cpu":
        return train_grid
    if not ACCELERATED:
        raise ValueError(
            f"device={device!r} needs PyTorch: import ResidualMLPClassifier from closecall.nn "
            "(pip install \"closecall[torch]\"); device='cpu' always works"
        )
    return partial(ACCELERATED["torch"], device=device)


class ResidualMLPClassifier(_NetworkClassifier):
    """The paper's network: two hidden ReLU layers with skip connections, trained with any aggregate loss.

    It is trained by full-batch gradient descent (Adam) from a random start. Inputs are not scaled: put a
    ``StandardScaler`` before the classifier in a pipeline. With more than two classes, the margin is the score of the
    true class minus the best other score. Models trained with an aggregate loss are not calibrated: for probabilities,
    wrap the classifier in scikit-learn's ``CalibratedClassifierCV``.

    Parameters
    ----------
    loss, aggregate : str
        Names in :data:`closecall.losses.LOSSES` and :data:`closecall.aggregates.AGGREGATES`.
    k, m : int, float or None
        Counts of examples or fractions of their total mass, if the aggregate uses them.
    alpha : float
        The strength of the L2 penalty.
    hidden : int, optional
        The number of units in each hidden layer; by default the number of features, as in the paper.
    max_iter : int
        The number of steps; if k decays, the decay extends over all of them.
    learning_rate : float
        Adam's step size, which falls to zero over the last third of the steps.
    penalize_intercept : bool
        Whether alpha penalises the intercepts too.
    early_stopping, validation_fraction, patience : bool, float, int
        Whether to hold out a fraction of the examples, keep the parameters that are best on them, and stop after
        ``patience`` steps without improvement. If k decays, early stopping applies only to the last third of the steps.
    device : str
        ``"cpu"`` or, after ``import closecall.nn`` (extra ``torch``), ``"cuda"`` or ``"mps"``.
    random_state : int, RandomState or None
        Seed for the random start and the choice of held-out examples.
    callback : callable, optional
        A function that is called with a :class:`closecall.network.NetworkProgress` about a hundred times per fit.

    Attributes
    ----------
    classes_ : array (classes,)
    network_ : NetworkGrid
        The trained network; ``ResidualMLP.of(network_.parameters)`` is a plain torch module.
    n_iter_ : int

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = ResidualMLPClassifier(hidden=8, alpha=1e-3, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        *,
        loss: str = "logistic",
        aggregate: str = "close_decay",
        k: Count = 0.1,
        m: Count = None,
        alpha: float = 1.0,
        hidden: int | None = None,
        max_iter: int = 300,
        learning_rate: float = 0.03,
        penalize_intercept: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 50,
        device: str = "cpu",
        random_state: Any = None,
        callback: Callable[[NetworkProgress], None] | None = None,
    ) -> None:
        keep(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ResidualMLPClassifier:
        """Train on X (samples, features), labels y (samples,) and masses ``sample_weight`` (samples,)."""
        X, codes, mass = self._check(X, y, sample_weight)
        random = check_random_state(self.random_state)
        seed, validation = int(random.randint(2**31 - 1)), None
        if self.early_stopping:
            X, codes, mass = X[mass > 0], codes[mass > 0], mass[mass > 0]
            X, held, codes, held_codes, mass, _ = train_test_split(
                X, codes, mass, test_size=self.validation_fraction, stratify=codes, random_state=seed
            )
            validation = held, held_codes
        problem = Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)
        warn_of_one(self.aggregate, self.k)
        self.network_ = self._train(X, codes, mass, [problem], seed, validation)
        self.n_iter_ = int(self.network_.n_iter[0])
        return self


class ResidualMLPClassifierCV(_NetworkClassifier):
    """The paper's network with alpha, k and the aggregate chosen by cross-validation, all in one grid.

    ``average`` is always tried. A different aggregate is chosen only if its mean gain over the best ``average``
    setting, paired by fold, exceeds ``guard`` standard errors; with ``guard=0``, the setting with the best mean score
    is chosen. Ties go to the larger k, then to the larger alpha. The winner is trained again on all examples.

    Parameters
    ----------
    aggregates : sequence of str
        The aggregates that compete with ``average``.
    ks : sequence of int, float or None, optional
        By default, powers of ten below the number of training examples in a fold.
    ms : sequence of int or float
        Values of m for aggregates that leave out the m largest losses; combinations with m >= k are skipped.
    alphas : sequence of float, optional
        By default, the powers of ten from 1e-5 to 1e5.
    cv : int, splitter or iterable of splits
        If an int, the number of stratified folds.
    guard : float
    n_starts : int
        Number of random starts for every setting, including ``average``, so that none of them has an advantage.
        The winner is then retrained from its own start.
    loss, hidden, max_iter, learning_rate, penalize_intercept, device, random_state, callback
        The same as for :class:`ResidualMLPClassifier`.

    Attributes
    ----------
    best_params_ : dict
        ``aggregate``, ``k``, ``alpha`` and ``m`` of the winner.
    alpha_, k_, m_ : float
        The settings of the winner; k and m are given as the masses used in the fit to all examples.
    cv_results_ : dict of arrays
        ``params`` (problems, 4), ``start`` (problems,), ``fold_scores`` (folds, problems), ``mean_test_score``
        (problems,); with several starts, every setting appears once per start.
    guard_report_ : dict
        The best ``average`` setting, the best setting overall, the mean gain and its standard error.
    classes_, network_, n_iter_
        The same as for :class:`ResidualMLPClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(120, noise=0.1, random_state=0)
    >>> model = ResidualMLPClassifierCV(hidden=6, alphas=[0.01, 1.0], cv=3, max_iter=100, random_state=0).fit(X, y)
    >>> sorted(model.best_params_)
    ['aggregate', 'alpha', 'k', 'm']
    """

    patience = 50

    def __init__(
        self,
        *,
        loss: str = "logistic",
        aggregates: Sequence[str] = ("close_decay",),
        ks: Sequence[Count] | None = None,
        ms: Sequence[Count] = (0.01, 0.05, 0.2),
        alphas: Sequence[float] | None = None,
        cv: Any = 5,
        guard: float = 1.0,
        n_starts: int = 1,
        hidden: int | None = None,
        max_iter: int = 300,
        learning_rate: float = 0.03,
        penalize_intercept: bool = False,
        device: str = "cpu",
        random_state: Any = None,
        callback: Callable[[NetworkProgress], None] | None = None,
    ) -> None:
        keep(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ResidualMLPClassifierCV:
        """Choose and train a network on X (samples, features), y (samples,) and masses ``sample_weight`` (samples,)."""
        X, codes, mass = self._check(X, y, sample_weight)
        if not isinstance(self.n_starts, Integral) or self.n_starts < 1:
            raise ValueError(f"n_starts={self.n_starts!r} must be a whole number >= 1")
        draws = check_random_state(self.random_state).randint(2**31 - 1, size=self.n_starts).tolist()
        folds = list(check_cv(self.cv, codes, classifier=True).split(X, codes))
        settings = self._problems(min(float(mass[train].sum()) for train, _ in folds))
        problems, seeds = [each for each in settings for _ in draws], draws * len(settings)
        scores = np.empty((len(folds), len(problems)))
        for row, (train, test) in zip(scores, folds, strict=True):
            grid = self._train(X[train], codes[train], mass[train], problems, seeds)
            right = np.array([chosen(each.T) for each in grid.scores(X[test])]) == codes[test]
            row[:] = right @ mass[test] / max(mass[test].sum(), np.finfo(float).tiny)
        best = self._choose(problems, scores)
        winner = problems[best]
        self.best_params_ = {name: getattr(winner, name) for name in _CHOSEN}
        self.alpha_ = winner.alpha
        self.k_, self.m_ = get_aggregate(winner.aggregate).counts(winner.k, winner.m, float(mass.sum()))
        self.cv_results_ = {
            "params": np.array([[getattr(each, name) for name in _CHOSEN] for each in problems], dtype=object),
            "start": np.tile(np.arange(len(draws)), len(settings)),
            "fold_scores": scores,
            "mean_test_score": scores.mean(axis=0),
        }
        self.network_ = self._train(X, codes, mass, [winner], seeds[best])
        self.n_iter_ = int(self.network_.n_iter[0])
        return self

    def _problems(self, smallest: float) -> list[Problem]:
        # The settings of ``average`` come first.
        alphas = np.logspace(-5, 5, 11) if self.alphas is None else self.alphas
        ks = [10**power for power in range(1, 10) if 10**power < smallest] if self.ks is None else self.ks
        for name in self.aggregates:
            warn_of_one(name, *ks, depth=4)
        others = [
            Problem(self.loss, name, k, float(alpha), m)
            for name in self.aggregates
            for k, m in _counts(name, ks, self.ms, smallest)
            for alpha in alphas
        ]
        return [Problem(self.loss, "average", None, float(alpha)) for alpha in alphas] + others

    def _choose(self, problems: Sequence[Problem], scores: Array) -> int:
        mean = scores.mean(axis=0)

        def rank(index: int) -> tuple[float, float, float]:
            k = problems[index].k
            return mean[index], np.inf if k is None else float(k), problems[index].alpha

        averages = [index for index, each in enumerate(problems) if get_aggregate(each.aggregate).plain]
        best_average, best = max(averages, key=rank), max(range(len(problems)), key=rank)
        gains = scores[:, best] - scores[:, best_average]
        error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
        self.guard_report_ = {
            "average": problems[best_average],
            "best": problems[best],
            "gain": float(gains.mean()),
            "standard_error": error,
        }
        return best if self.guard == 0 or gains.mean() > self.guard * error else best_average
