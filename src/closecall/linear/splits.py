"""The folds of a search, as groups of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils.metadata_routing import get_routing_for_object

from .._names import Array
from ..paired import Units, numbered, units_of
from .training import Training

#: The number of folds in a search without ``cv`` and in a calibration.
FOLDS = 5
#: How missing values are printed.
MISSING = ("None", "nan", "<NA>", "NaT")
#: The number of parts into which :func:`strangers` divides groups.
CROSSED = 3
#: The numbers of training and test rows in the preliminary round of a search.
HEAT_ROWS, HEAT_TESTS = 5000, 500
#: Distances more than this many interquartile ranges above the upper quartile are those of outliers; see
#: :func:`outlying`.
FENCE = 1.5
#: Equal rows count as copies if there are more than this many times as many as in independent columns. In discrete
#: tables of PMLB, the ratio for pairs of equal rows is 1.2 (titanic), 7.8 (flare) and 1,400 (spect).
CHANCE = 10

Pair = tuple[Array, Array]


@dataclass(frozen=True)
class Splits:
    """Training and test sets; ``train`` and ``test`` (folds, groups) state which groups of rows belong to each."""

    group: Array
    train: Array
    test: Array

    def __len__(self) -> int:
        return len(self.train)

    def units(self, training: Training, groups: Any) -> Units:
        """Return which rows depend on each other: rows of the same group, neighbours in time, or equal rows."""
        pairs = (
            (training.rows[one[self.group]], training.rows[two[self.group]])
            for one, two in zip(self.train, self.test, strict=True)
        )
        return units_of(training.hashes, None if groups is None else np.asarray(groups)[training.rows], pairs)


def make_splits(cv: Any, training: Training, X: Any, y: Any, groups: Any, *, seed: int = 0) -> Splits:
    """Split the training rows by ``cv``, whose row numbers refer to X and y as passed to ``fit``.

    A number, or None for the default, means stratified folds, which are shuffled with ``seed`` unless it is 0. A
    splitter receives the groups; if they have two columns, it receives the first column, and :func:`strangers`
    separates the second.
    """
    _check_groups(cv, groups)
    if cv is None or (isinstance(cv, int | np.integer) and not isinstance(cv, bool)):
        return _stratified(None if cv is None else int(cv), training, seed)
    pairs = list(check_cv(cv, y, classifier=True).split(X, y, first_of(groups)))
    if not pairs:
        raise ValueError("cv yields no splits; give at least one (train, test) pair")
    if groups is not None:
        pairs = strangers(pairs, y, groups)
    member = np.zeros((2 * len(pairs), len(y)), dtype=bool)
    for fold, (train, test) in enumerate(pairs):
        try:
            member[fold, train] = True
            member[len(pairs) + fold, test] = True
        except IndexError as error:
            raise ValueError(f"split {fold} of cv has row numbers beyond the {len(y)} rows of X: {error}") from None
    member = member[:, training.rows]
    # Unique columns are sorted, so the number of a group does not depend on the order of the rows.
    patterns, group = np.unique(member, axis=1, return_inverse=True)
    splits = Splits(np.ravel(group), patterns[: len(pairs)], patterns[len(pairs) :])
    for fold in range(len(splits)):
        if not splits.test[fold][splits.group].any():
            raise ValueError(f"split {fold} of cv has no test rows with positive weight; drop it")
        trained = np.bincount(training.codes[splits.train[fold][splits.group]], minlength=len(training.classes))
        if not trained.all():
            lost = training.classes.tolist()[trained.argmin()]
            raise ValueError(
                f"split {fold} of cv has no training rows of class {lost!r}; stratify the splits or use fewer"
            )
    return splits


def first_of(groups: Any) -> Any:
    """Return the groups that a splitter receives: the first column if there are two."""
    if groups is None:
        return None
    cells = np.asarray(groups)
    if cells.dtype.kind in "fO":
        unknown = [each for each in cells.ravel() if not isinstance(each, str) and str(each) in MISSING]
        if unknown:
            raise ValueError(f"groups has {len(unknown)} missing values; give every row one, if need be its own")
    return groups if cells.ndim < 2 else cells[:, 0]


def strangers(pairs: list[Pair], y: Any, groups: Any, seed: int = 0) -> list[Pair]:
    """Return splits whose test rows share no group with the training rows.

    A model for new users, items or panel members must not be preferred just because it is accurate for existing ones.
    If some groups in a column occur on both sides of a split, they are divided into :data:`CROSSED` parts, stratified
    by class. The split is then replaced by several, each of which tests a model on the rows of one part after training
    it on the others.

    Examples
    --------
    >>> user, item = np.divmod(np.arange(16), 4)
    >>> half = np.arange(8), np.arange(8, 16)
    >>> [test.tolist() for _, test in strangers([half], np.arange(16) // 2 % 2, np.column_stack([user, item]))]
    [[9, 10, 13, 14], [8, 11, 12, 15]]
    """
    for column in np.asarray(groups).reshape(len(y), -1).T:
        codes, labels = numbered(column), numbered(np.asarray(y))
        if codes.max() == 0 or not any(np.isin(codes[train], codes[test]).any() for train, test in pairs):
            continue
        each = np.bincount(np.unique(np.column_stack([labels, codes]), axis=0)[:, 0])  # groups of each class
        splitter = StratifiedGroupKFold(max(2, min(CROSSED, each.min())), shuffle=True, random_state=seed)
        parts = [np.isin(np.arange(len(y)), part) for _, part in splitter.split(labels, labels, codes)]
        pairs = [(train[~part[train]], test[part[test]]) for train, test in pairs for part in parts]
        pairs = [(train, test) for train, test in pairs if len(test)]
        if any(len(np.unique(labels[train])) <= labels.max() for train, _ in pairs):
            raise ValueError(
                "a split has no training rows of one class, because the groups of its test rows are left out; "
                "merge classes, use fewer splits, or pass fewer columns of groups"
            )
    return pairs


def ignores_groups(cv: Any) -> bool:
    """Return whether a splitter ignores groups; splitters from outside scikit-learn are assumed to use them."""
    foreign = hasattr(cv, "split") and not type(cv).__module__.startswith("sklearn.")
    return not foreign and not get_routing_for_object(cv).consumes("split", ["groups"])


def _check_groups(cv: Any, groups: Any) -> None:
    """Raise an error if groups are given but ignored, because information would leak to the test rows."""
    if groups is not None and ignores_groups(cv):
        given = f"cv={cv!r}" if cv is None or isinstance(cv, int) or hasattr(cv, "split") else "a list of index pairs"
        raise ValueError(
            f"groups are given, but {given} ignores them; use a splitter that uses them, such as "
            "cv=StratifiedGroupKFold(5) or GroupKFold(5)"
        )


def _stratified(cv: int | None, training: Training, seed: int) -> Splits:
    """Return scikit-learn's stratified folds: in row order for seed 0, shuffled for any other seed."""
    counts = np.bincount(training.codes)
    rare, least = training.classes.tolist()[counts.argmin()], int(counts.min())  # 'x', not np.str_('x')
    if least < 2:
        raise ValueError(
            f"class {rare!r} has {least} example(s); cross-validation needs two or more of each class: drop or merge "
            "the class, or give a validation split as cv=[(train, test)]"
        )
    if cv is not None and not 2 <= cv <= least:
        raise ValueError(
            f"cv={cv} must be at least 2 and at most the size of every class, and class {rare!r} has {least} "
            "example(s); use a smaller cv, or cv=None to choose the number of folds"
        )
    folds = min(FOLDS, least) if cv is None else int(cv)
    group = stratified_folds(training.codes, training.hashes, training.X, folds, seed or None)
    test = np.eye(folds, dtype=bool)
    return Splits(group, ~test, test)


def stratified_folds(labels: Array, equal: Array, X: Any, folds: int, seed: int | None) -> Array:
    """Return the fold number (samples,) of each row; the folds are stratified, and equal rows share a fold.

    A test on a row proves nothing if the model was trained on a copy of that row. If rows are repeated so often that
    folds of distinct rows would be unbalanced, whole groups of copies are assigned to folds by size. Equal rows
    with different labels may also be chance matches in a table with few discrete columns: if a group is large and
    :func:`by_chance` is true for it, each of its rows is assigned separately. ``equal`` (samples,) is the same for
    equal rows. Without a seed, the folds follow the order of the rows.

    Examples
    --------
    >>> y, equal = np.tile([0, 1], 6), np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])
    >>> stratified_folds(y, equal, equal[:, None], 3, None).tolist()
    [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0]
    """
    _, first, member = np.unique(equal, return_index=True, return_inverse=True)
    distinct = np.unique(labels[first], return_counts=True)[1]
    several = len(distinct) == len(np.unique(labels)) and distinct.min() >= folds
    large = max(2, len(labels) / (3 * folds))  # with more rows, a group unbalances the folds
    often = np.bincount(member).max() > large
    fold = np.empty(len(labels), dtype=int)
    if (often or not several) and folds <= len(first) < len(labels):
        mixed = np.bincount(member, labels != labels[first][member]) > 0
        if mixed.any():
            apart = (mixed & (np.bincount(member) > large) & by_chance(member, X))[member]
            member = numbered(np.where(apart, len(first) + np.arange(len(labels)), member))
        if member.max() + 1 < len(labels):
            groups = StratifiedGroupKFold(folds, shuffle=seed is not None, random_state=seed)
            for number, (_, held) in enumerate(groups.split(labels, labels, member)):
                fold[held] = number
            if all(len(np.unique(labels[fold != number])) == len(np.unique(labels)) for number in range(folds)):
                return fold
    if not several or often:
        first, member = np.arange(len(labels)), np.arange(len(labels))
    order = np.sort(first)
    splitter = StratifiedKFold(folds, shuffle=seed is not None, random_state=seed)
    for number, (_, held) in enumerate(splitter.split(order, labels[order])):
        fold[order[held]] = number
    return fold[first[member]]


def by_chance(member: Array, X: Any) -> Array:
    """Return which groups of equal rows (groups,) may be equal by chance, as in a table with few discrete columns.

    ``member`` (samples,) contains the group of each row. A group may be equal by chance if each of its values also
    occurs in other groups, and if it has at most :data:`CHANCE` times as many rows as expected for independent columns.

    Examples
    --------
    >>> discrete, distinct = np.random.default_rng(0).integers(3, size=(90, 2)), np.arange(180.0).reshape(90, 2) // 6
    >>> bool(by_chance(discrete @ [3, 1], discrete).all()), bool(by_chance(np.arange(90) // 3, distinct).any())
    (True, False)
    """
    first, size = np.unique(member, return_index=True, return_counts=True)[1:]
    rows = csr_matrix(X)[first] if issparse(X) else np.asarray(X).reshape(len(member), -1)[first]
    group, column = rows.nonzero() if issparse(X) else (at.ravel() for at in np.indices(rows.shape))
    values = np.asarray(rows[group, column]).ravel()
    codes = numbered(values if values.dtype.kind in "biuf" else values.astype(str))
    value = numbered(column * (codes.max(initial=0) + 1) + codes)
    count = np.bincount(value, size[group])[value]
    with np.errstate(divide="ignore"):
        log = np.where(count > size[group], np.log(count / len(member)), -np.inf)
        if issparse(X):  # zeros, in the columns in which a group has no other value
            zeros = np.log1p(-np.bincount(column, size[group], rows.shape[1]) / len(member))
            zeros[np.isinf(zeros)] = 0.0
            log -= zeros[column]
    share = np.exp(np.bincount(group, log, len(size)) + (zeros.sum() if issparse(X) else 0.0))
    return np.asarray(size <= CHANCE * len(member) * share * (1 + 1e-9))  # rounding does not decide


def outlying(X: Any, weight: Array) -> Array:
    """Return a mask (samples,) of the rows that are too far from the mean, measured in standardised columns.

    The distances of these rows are more than :data:`FENCE` interquartile ranges above the upper quartile.

    Examples
    --------
    >>> X = np.append(np.linspace(-1, 1, 19), 50.0)[:, None]
    >>> np.flatnonzero(outlying(X, np.ones(20))).tolist()
    [19]
    """
    share, far = weight / weight.sum(), np.zeros(len(weight))
    if issparse(X):
        size = abs(X).max(axis=0).toarray().ravel().astype(np.float64)
        X = X.astype(np.float64)
        X.data /= np.where(size > 0, size, 1.0)[X.indices]  # the inverse of a denormal size would be infinite
        squares, mean = X.multiply(X), share @ X
        spread = share @ squares - mean**2
        unit = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-12)
        far = squares @ unit - 2 * (X @ (mean * unit)) + mean**2 @ unit
    for column in () if issparse(X) else X.T:
        apart = column.astype(np.float64) - share @ column
        apart /= np.abs(apart).max() or 1.0
        far += apart**2 / (share @ apart**2 or 1.0)
    # Rounded, because rounding errors must not decide which of several equal rows is nearer.
    ranked, places = np.unique(np.round(far / (share @ far or 1.0), 9), return_inverse=True)
    mass = np.bincount(places.ravel(), share, len(ranked))
    distance = np.sqrt(np.maximum(ranked, 0))
    low, high = distance[np.searchsorted(np.cumsum(mass), [0.25 - 1e-9, 0.75 - 1e-9])]
    return np.asarray((distance > high + FENCE * (high - low) + 1e-9)[places.ravel()])


def heat_rows(training: Training, split: Splits, limit: int = HEAT_ROWS) -> tuple[Array, float]:
    """Return the rows of the first fold that the preliminary round uses, and their share of its training rows.

    These rows are the test rows and at most about ``limit`` training rows, which are drawn at random and stratified by
    class.
    """
    trains, tests = split.train[0][split.group], split.test[0][split.group]
    share = min(1.0, limit / max(1, int(trains.sum())))
    if share == 1:
        return np.flatnonzero(trains | tests), 1.0
    drawn = np.random.default_rng(0).permutation(len(trains))
    chosen = [np.flatnonzero(tests)]
    for code in range(len(training.classes)):
        mine = drawn[(trains & (training.codes == code))[drawn]]
        chosen.append(mine[: max(2, int(np.ceil(share * len(mine))))])
    return np.sort(np.concatenate(chosen)), share


def heat_folds(split: Splits) -> int:
    """Return the number of folds that provide enough test rows for the preliminary round."""
    return min(len(split), -(-HEAT_TESTS // max(1, int(split.test[0][split.group].sum()))))
