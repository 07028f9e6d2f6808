"""Choose among classifiers by cross-validation, and replace the baseline only if the gain is significant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.metrics import check_scoring
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed

from .._names import Array, keep
from ..linear.splits import Pair
from ..paired import GUARD, STRICT, Comparison, Gain, check_guard, compare, units_of
from .contest import FoldContest, Folding, RowContest
from .folds import Referee, answers, check_input, equal_rows, fit_rows, fold_pairs, weighed_pairs

BASELINE, GUESSING = "baseline", "guessing"


class GuardedClassifierCV(Referee):
    """Choose the best of several classifiers by cross-validation, or the baseline if none is significantly better.

    All classifiers are cross-validated on the same folds. Each part of the rows is used to evaluate a weighted mean of
    the challengers that do best on the other parts, and the evaluation is repeated on a second set of folds. The best
    challenger replaces the baseline only if the resulting paired gain exceeds a critical value. If all gains were due
    to chance, the gain would exceed this value as rarely as a standard normal variable exceeds ``guard``. Standard
    errors are computed over groups if ``groups`` are given, over blocks of time if every fold of ``cv`` is trained only
    on earlier rows, and otherwise over distinct rows; see :mod:`closecall.panel`. Searches such as ``GridSearchCV`` can
    be challengers; they are tuned within the training folds.

    Parameters
    ----------
    baseline : classifier or pipeline
        The classifier that is kept unless a challenger is significantly better.
    challengers : sequence of (name, classifier), mapping of names to classifiers, or one classifier
    cv : int, splitter, iterable of (train, test) or None
        None means five stratified folds, or fewer if a class has fewer members. If ``cv`` is None or a number, the rows
        of a group stay together (without ``groups``, identical rows do), and a second set of folds is used. A splitter
        or a list of pairs is used as given.
    scoring : str, callable or None
        None means accuracy, compared row by row. Any other score is compared fold by fold, with Nadeau and Bengio's
        correction for overlapping training sets. Each fold is then used to evaluate the challenger that is best on
        folds with different rows, and a second set of folds is used only for a single challenger.
    guard : float or None
        The number of standard errors that the gain over the baseline must exceed. A smaller gain is enough if it is
        positive and the gain in balanced accuracy exceeds this number of standard errors. The balanced accuracy must
        also exceed that of guessing by two standard errors. None means 1 for accuracy, and 2 for any other ``scoring``;
        such a score must exceed that of predicting the class proportions. If the gain depends on only a few groups,
        blocks or rows, the number is increased according to Student's t distribution. With 0, the classifier with the
        best mean score is chosen.
    refit : bool
        Whether to fit the chosen classifier on all rows. If False, only the report is available.
    n_jobs : int or None
        The number of fits to run in parallel.

    Attributes
    ----------
    guard_report_ : dict
        The figures for the comparison, and a ``reason`` for the choice in words.
    best_name_ : str
        The name of the chosen classifier, which is ``"baseline"`` or the name of a challenger.
    best_estimator_ : classifier
        The chosen classifier, fitted on all rows.
    cv_results_ : dict
        The names, the mean scores, their standard deviations over the folds, and the scores of all folds.
    classes_, n_features_in_, feature_names_in_
        The same as in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = make_moons(300, noise=0.2, random_state=0)
    >>> model = GuardedClassifierCV(LogisticRegression(), [("neighbours", KNeighborsClassifier())]).fit(X, y)
    >>> model.best_name_
    'neighbours'
    """

    _fitted, _unfitted = "best_estimator_", "baseline"

    def __init__(
        self,
        baseline: Any,
        challengers: Any,
        *,
        cv: Any = None,
        scoring: Any = None,
        guard: float | None = None,
        refit: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **params: Any) -> GuardedClassifierCV:
        """Compare the classifiers, choose one, and fit it on all rows.

        Parameters
        ----------
        X : any input that the classifiers accept, (samples, features)
        y : array (samples,)
        sample_weight : array (samples,), optional
            Weights that are passed to every classifier and used in scoring.
        groups : array (samples,) or (samples, 2), optional
            The rows of a group stay on one side of every split, whatever the ``cv``, and the standard error is computed
            over groups. Groups are also passed to searches that split by groups. Two columns define crossed groups,
            such as users and items: every test set then contains only new users and new items. Pass a column only if
            the model will be applied to new groups of that kind; a model may use what it has learnt about groups that
            will occur again. If every fold of ``cv`` is trained only on earlier rows, pass at most one column, which is
            crossed with the folds. Without groups, such a ``cv`` tests predictions of the future of known members.
        **params Passed to every ``fit``, or routed if metadata routing is enabled.
        """
        guard = check_guard(self.guard, GUARD if self._by_rows else STRICT)
        X, y, mass = check_input(X, y, sample_weight)
        members = self._members()
        self.classes_ = np.unique(y)
        kwargs = self._fit_params(mass, groups, params)
        weights = np.ones(len(y)) if mass is None else mass
        division = Folding(weighed_pairs(fold_pairs(self.cv, X, y, groups), weights), {})
        units = units_of(equal_rows(X), groups, division.pairs)
        everything = [(member, fold) for member in range(len(members)) for fold in range(len(division.pairs))]
        self._look(everything, division, members, X, y, weights, kwargs)
        scores = division.scores(len(members))
        best, outcome, divisions = int(np.argmax(scores.mean(axis=1))), None, [division]
        if guard > 0:
            challenger = 1 + int(np.argmax(scores[1:].mean(axis=1)))
            divisions.append(Folding(weighed_pairs(fold_pairs(self.cv, X, y, groups, fresh=True), weights), {}))
            contest = (RowContest if self._by_rows else FoldContest)(divisions, len(members), weights, units)
            for number, each in enumerate(divisions):
                self._look(contest.todo(number), each, members, X, y, weights, kwargs)
            informed: Callable[[bool], Gain] | None
            if isinstance(contest, RowContest):
                informed = partial(contest.informed, np.searchsorted(self.classes_, y))
            else:
                informed = self._guessed(contest, members, X, y, weights, mass)
            outcome = compare(members[challenger][0], BASELINE, contest.gain(), guard, informed)
            best = challenger if outcome.taken else 0
        self._report([name for name, _ in members], divisions, best, outcome, guard)
        if self.refit:
            name, estimator = members[best]
            self.best_estimator_ = clone(estimator).fit(X, y, **kwargs[name])
        return self

    @property
    def _by_rows(self) -> bool:
        return self.scoring in (None, "accuracy")

    def _look(
        self, asked: Sequence[tuple[int, int]], division: Folding, members: Sequence[tuple[str, Any]], X: Any,
        y: Array, weights: Array, kwargs: dict[str, Any],
    ) -> None:  # fmt: skip
        """Fit members on folds, unless they are already fitted, and score the test rows."""
        scoring = None if self._by_rows else self.scoring
        todo = [each for each in dict.fromkeys(asked) if each not in division.seen]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_tested)(members[m][1], X, y, weights, division.pairs[fold], kwargs[members[m][0]], scoring)
            for m, fold in todo
        )
        division.seen.update(zip(todo, found, strict=True))

    def _guessed(
        self, contest: FoldContest, members: Sequence[tuple[str, Any]], X: Any, y: Array, weights: Array, mass: Any
    ) -> Callable[[bool], Gain] | None:
        """Score predictions of the class proportions, and return the gain over them, or None if they have no score."""
        guess = (GUESSING, DummyClassifier(strategy="prior"))
        kwargs = {GUESSING: {} if mass is None else {"sample_weight": mass}}
        try:
            for number, each in enumerate(contest.divisions):
                self._look(contest.guesses(number), each, [*members, guess], X, y, weights, kwargs)
        except (AttributeError, TypeError, ValueError):  # the scorer needs more than predictions and probabilities
            return None
        return contest.informed

    def _report(
        self, names: list[str], divisions: list[Folding], best: int, outcome: Comparison | None, guard: float
    ) -> None:
        scores = divisions[0].scores(len(names))
        self.best_name_, self.best_index_ = names[best], best
        self.best_score_ = float(scores[best].mean())
        self.cv_results_: dict[str, Any] = {
            "name": names,
            "mean_test_score": scores.mean(axis=1),
            "std_test_score": scores.std(axis=1),
            **{f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])},
        }
        means = ", ".join(f"{name} {mean:.4f}" for name, mean in zip(names, scores.mean(axis=1), strict=True))
        reason = f"{names[best]} has the best mean score" if outcome is None else str(outcome)
        self.guard_report_: dict[str, Any] = {
            "guard": guard,
            "fresh_folds": len({fold for each in divisions[1:] for _, fold in each.seen}),
            "comparison": None if outcome is None else asdict(outcome),
            "chosen": names[best],
            "reason": f"{reason}. Mean scores: {means}.",
        }

    def _named(self) -> list[tuple[str, Any]]:
        """Return (name, challenger) pairs for any form of ``challengers``."""
        given = self.challengers
        if isinstance(given, Mapping):
            return list(given.items())
        if not isinstance(given, list | tuple):
            return [(type(given).__name__, given)]
        return [item if isinstance(item, tuple) else (type(item).__name__, item) for item in given]

    def _members(self) -> list[tuple[str, Any]]:
        named = self._named()
        if not named:
            raise ValueError("challengers is empty; give at least one (name, classifier)")
        members = [(BASELINE, self.baseline), *named]
        names = [name for name, _ in members]
        for name, member in members:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used for two classifiers; use a different name for each")
            if "__" in name:
                raise ValueError(f"the name {name!r} must not contain '__', which separates a name from a parameter")
            if name in ("challengers", "cv", "scoring", "guard", "refit", "n_jobs"):
                raise ValueError(f"a challenger cannot be called {name!r}, which is a parameter name; use another")
            if not (hasattr(member, "fit") and is_classifier(member)):
                raise ValueError(f"{name} must be a classifier with fit and predict, not {member!r}")
        return members

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep``, also the parameters of each classifier as ``name__parameter``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and not hasattr(self.challengers, "get_params"):
            for name, member in self._named():
                if hasattr(member, "get_params"):
                    params |= {name: member, **{f"{name}__{key}": value for key, value in member.get_params().items()}}
        return params

    def set_params(self, **params: Any) -> GuardedClassifierCV:
        """Set parameters; ``name`` replaces a challenger, and ``name__parameter`` sets one of its parameters."""
        if "challengers" in params:
            self.challengers = params.pop("challengers")
        if not hasattr(self.challengers, "get_params"):
            named = dict(self._named())
            for key in [key for key in params if key.partition("__")[0] in named]:
                name, _, inner = key.partition("__")
                if inner:
                    named[name].set_params(**{inner: params.pop(key)})
                else:
                    named[name] = params.pop(key)
                    self.challengers = named if isinstance(self.challengers, Mapping) else list(named.items())
        super().set_params(**params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_") or (not self.refit and hasattr(self, "guard_report_"))

    def predict(self, X: Any) -> Array:
        """Return the labels (samples,) that the chosen classifier predicts."""
        return self._classifier.predict(X)

    @answers("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Return the scores of the chosen classifier, with shape (samples,) or (samples, classes)."""
        return self._classifier.decision_function(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score that ``scoring`` defines, or the accuracy if it is None."""
        return _scored(self._classifier, X, np.asarray(y), sample_weight, self.scoring or "accuracy")


def _tested(
    member: Any, X: Any, y: Array, weights: Array, pair: Pair, kwargs: dict[str, Any], scoring: Any
) -> tuple[float, Array]:
    """Return the score on a fold's test rows, and a mask of those classified correctly."""
    train, test = pair
    model, rows = fit_rows(member, X, y, train, kwargs), _safe_indexing(X, test)
    if scoring is None:
        right = np.asarray(model.predict(rows)).ravel() == y[test]
        return float(weights[test] @ right / weights[test].sum()), right
    return _scored(model, rows, y[test], weights[test], scoring), np.empty(0, dtype=bool)


def _scored(model: Any, X: Any, y: Array, weights: Array | None, scoring: Any) -> float:
    """Return the score, weighted if the weights differ and the scorer accepts them."""
    scorer = check_scoring(model, scoring=scoring)
    if weights is None or (np.asarray(weights) == np.asarray(weights)[0]).all():
        return float(scorer(model, X, y))
    try:
        return float(scorer(model, X, y, sample_weight=np.asarray(weights)))
    except TypeError as error:
        if "sample_weight" not in str(error):
            raise
        return float(scorer(model, X, y))
