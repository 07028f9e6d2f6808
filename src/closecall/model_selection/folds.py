"""Code for folds, sample weights and fits that both meta-estimators share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import PredefinedSplit, StratifiedGroupKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, get_routing_for_object, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._names import Array
from ..aggregates import check_mass
from ..linear.splits import FOLDS, MISSING, Pair, first_of, ignores_groups, strangers, stratified_folds
from ..linear.training import row_hashes


def weighed_pairs(pairs: list[Pair], weights: Array) -> list[Pair]:
    """Return the pairs whose test rows have a positive total weight."""
    kept = [pair for pair in pairs if weights[pair[1]].sum() > 0]
    if pairs and not kept:
        raise ValueError("no test row of cv has a positive weight; use a different cv")
    return kept


def fold_pairs(cv: Any, X: Any, y: Array, groups: Any, *, fresh: bool = False) -> list[Pair]:
    """Return pairs of training and test rows; if ``groups`` are given, no group is on both sides of a pair.

    Parameters
    ----------
    cv : int, splitter, iterable of (train, test) or None
        None means five stratified folds, or fewer if a class has fewer members or occurs in fewer groups. A whole
        number means exactly that many folds. In both cases, the rows of a group stay together if ``groups`` are given;
        otherwise identical rows do.
    X, y, groups : as given to ``fit``
    fresh : bool
        Return another division of the same kind, or an empty list if ``cv`` is a splitter or a list of pairs.

    Examples
    --------
    >>> y = np.array([0, 0, 0, 1, 1, 1])
    >>> [test.tolist() for _, test in fold_pairs(None, y[:, None], y, None)]
    [[2, 4], [1, 5], [0, 3]]
    """
    if cv is None or (isinstance(cv, int | np.integer) and not isinstance(cv, bool)):
        folds = _folds(None if cv is None else int(cv), y, groups)
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=int(fresh))
        if groups is None:
            splitter = PredefinedSplit(stratified_folds(y, equal_rows(X), X, folds, int(fresh)))
    elif fresh:
        return []
    else:
        splitter = check_cv(list(cv) if not hasattr(cv, "split") else cv, y, classifier=True)
    passed = None if ignores_groups(splitter) else first_of(groups)  # a splitter that ignores groups would warn
    pairs = [(np.asarray(train), np.asarray(test)) for train, test in splitter.split(X, y, passed)]
    if not pairs:
        raise ValueError("cv yields no splits; give at least one (train, test) pair")
    if groups is not None:
        pairs = strangers(pairs, y, groups, int(fresh))
    for number, (train, _) in enumerate(pairs):
        if len(np.unique(y[train])) < len(np.unique(y)):
            raise ValueError(f"split {number} of cv has no training rows of one class; stratify, or use fewer splits")
    return pairs


def equal_rows(X: Any) -> Array:
    """Return codes of shape (samples,) that are equal for equal rows; if rows cannot be compared, all codes differ.

    Examples
    --------
    >>> a, b, c = equal_rows([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    if sparse.issparse(X):
        rows = sparse.csr_matrix(X, copy=True)
        rows.sum_duplicates()
        return row_hashes(rows)
    try:
        table = np.asarray(X)
        table = table.reshape(len(table), -1)
        numeric = table.dtype.kind in "biuf"
        table = np.where(np.isnan(table), np.nan, table) + 0.0 if numeric else table  # one NaN, and no -0.0
        keys = [row.tobytes() if numeric else tuple(map(_present, row.tolist())) for row in table]
        # Numbered by first appearance, because Python's hashes differ between processes and units depend on the codes.
        known: dict[Any, int] = {}
        return np.array([known.setdefault(key, len(known)) for key in keys])
    except (TypeError, ValueError):
        return np.arange(len(X) if hasattr(X, "__len__") else X.shape[0])


def _present(value: Any) -> Any:
    """Return a value, or None if it is missing: NaN differs from itself, and pandas has more than one missing value."""
    return value if isinstance(value, str | int) or str(value) not in MISSING else None


def _folds(cv: int | None, y: Array, groups: Any) -> int:
    labels, counts = np.unique(y, return_counts=True)
    rare, least = labels.tolist()[counts.argmin()], int(counts.min())
    if least < 2:
        raise ValueError(
            f"class {rare!r} has only one example; cross-validation needs two or more of each class: drop or merge "
            "the class, or give a validation split as cv=[(train, test)]"
        )
    groups = first_of(groups)
    most = least if groups is None else min(least, len(np.unique(groups)))
    if groups is not None and cv is None:  # training folds without one class would bias the classifiers
        of_class = np.unique(np.column_stack([np.unique(v, return_inverse=True)[1] for v in (y, groups)]), axis=0)[:, 0]
        most = min(most, max(2, int(np.bincount(of_class).min())))
    if cv is not None and not 2 <= cv <= most:
        raise ValueError(
            f"cv={cv} must be between 2 and {most}: class {rare!r} has {least} examples"
            + ("" if groups is None else f" and there are {len(np.unique(groups))} groups")
            + "; use a different cv, or cv=None to choose the number of folds"
        )
    return min(FOLDS, most) if cv is None else int(cv)


def check_input(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Array, Array | None]:
    """Return X unchanged, and labels and weights as arrays; the classifiers themselves check X."""
    if y is None:
        raise ValueError("This classifier requires y to be passed, but the target y is None")
    X, y = indexable(X, y)
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    mass = None if sample_weight is None else check_mass(sample_weight, len(labels))
    found = np.unique(labels if mass is None else labels[mass > 0]).tolist()
    if len(found) < 2:
        raise ValueError(f"y contains {len(found)} class(es) with positive weight ({found}); a classifier needs two")
    return X, labels, mass


def answers(name: str) -> Any:
    """Expose a method only if the wrapped classifier, fitted or not, has it."""

    def check(self: Any) -> bool:
        getattr(getattr(self, self._fitted, getattr(self, self._unfitted)), name)  # its error states what is missing
        return True

    return available_if(check)


class Referee(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of both meta-estimators; it routes metadata and delegates prediction to a fitted classifier.

    ``_fitted`` names the attribute that holds this classifier, and ``_unfitted`` names the parameter that replaces it
    before fitting.
    """

    classes_: Array
    _fitted: str
    _unfitted: str

    @abstractmethod
    def _members(self) -> list[tuple[str, Any]]:
        """Return the names and classifiers to which metadata is routed."""

    @property
    def _classifier(self) -> Any:
        """The fitted classifier that makes the predictions."""
        check_is_fitted(self, self._fitted)
        return getattr(self, self._fitted)

    @answers("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the class probabilities (samples, classes) of the chosen classifier."""
        return self._classifier.predict_proba(X)

    @answers("predict_log_proba")  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of the class probabilities (samples, classes)."""
        return self._classifier.predict_log_proba(X)

    @property
    def n_features_in_(self) -> int:
        return int(self._classifier.n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        return self._classifier.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        tags, members = super().__sklearn_tags__(), [get_tags(member) for _, member in self._members()]
        for name in ("sparse", "allow_nan", "string", "pairwise"):
            setattr(tags.input_tags, name, all(getattr(member.input_tags, name) for member in members))
        tags.classifier_tags.multi_class = all(member.classifier_tags.multi_class for member in members)
        tags.classifier_tags.poor_score = any(member.classifier_tags.poor_score for member in members)
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata from ``fit`` to every classifier's ``fit`` and to the splitter."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        for name, member in self._members():
            mapping = MethodMapping().add(caller="fit", callee="fit").add(caller="predict", callee="predict")
            router.add(method_mapping=mapping, **{name: member})
        if hasattr(getattr(self, "cv", None), "split"):
            router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def _fit_params(self, mass: Array | None, groups: Any, params: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the keyword arguments for each member's ``fit``, by name."""
        if get_config()["enable_metadata_routing"]:
            given = {"sample_weight": mass, "groups": groups, **params}
            given = {name: value for name, value in given.items() if value is not None}
            routed = process_routing(self, "fit", **given)
            return {name: dict(routed[name].fit) for name, _ in self._members()}
        found = {}
        for name, member in self._members():
            weights = {} if mass is None else _argument(member, "sample_weight", mass, has_fit_parameter)
            if mass is not None and not weights:
                raise ValueError(
                    f"sample_weight was given, but {name} ({type(member).__name__}) accepts none in fit; omit the "
                    "weights, or enable scikit-learn's metadata routing and request them where they are needed"
                )
            grouping = {} if groups is None else _argument(member, "groups", first_of(groups), _splits_by)
            found[name] = {**params, **weights, **grouping}
        return found


def _argument(member: Any, name: str, value: Any, accepts: Callable[[Any, str], bool]) -> dict[str, Any]:
    """Return the keyword argument (if any) that passes a value to a classifier or to the last step of a pipeline."""
    if accepts(member, name):
        return {name: value}
    if isinstance(member, Pipeline) and accepts(member.steps[-1][1], name):
        return {f"{member.steps[-1][0]}__{name}": value}
    return {}


def _splits_by(member: Any, name: str) -> bool:
    """Return whether the splitter of a search accepts an argument of this name."""
    cv = getattr(member, "cv", None)
    return hasattr(cv, "split") and bool(get_routing_for_object(cv).consumes("split", [name]))


def fit_rows(estimator: Any, X: Any, y: Array, rows: Array, params: dict[str, Any]) -> Any:
    """Return a clone fitted on the given rows; parameters with one value per sample are restricted to these rows."""
    params = {
        name: _safe_indexing(value, rows) if hasattr(value, "__len__") and len(value) == len(y) else value
        for name, value in params.items()
    }
    return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **params)
