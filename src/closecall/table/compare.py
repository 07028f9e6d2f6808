"""Run every contender on one table, split by split, all on the same rows.

A split has a training (50 %), a validation (25 %) and a test part (25 %). Preprocessing is fitted on the first two.
The settings of every aggregate are solved in one batch on the training part; the setting that does best on the
validation part is solved again on both, like every other contender. Splits run in separate processes, with one BLAS
thread each.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from closecall._names import Array, lookup
from closecall.aggregates import AGGREGATES, get_aggregate
from closecall.linear import Diagnosis, diagnose
from closecall.linear.fitting import MULTICLASS, Options, exact_intercepts, fit_models, scores_of
from closecall.linear.search import ALPHAS, KS, MS
from closecall.linear.training import check_training
from closecall.losses import LOSSES
from closecall.objective import Problem
from closecall.table.read.sheet import Sheet

from .contenders import (
    AGGREGATED,
    CLOSE_K,
    EXACT_THRESHOLD,
    MAJORITY,
    PLAIN,
    UNSQUASHED,
    USUAL,
    Contender,
    Entry,
    built_in,
    contender_of,
    libraries,
)
from .divide import Order, Parts
from .measure import METRICS, Metric, log_probabilities, sigmoids, wide
from .preprocess import Preprocessor
from .table import check_classes
from .tuning import SplitData

#: A class needs this many rows to be in all three parts.
LEAST = 4
#: Rows x splits x classes below which processes cost more than they save.
WORTH = 20_000
EXACT = "average_exact_intercept"
#: Steps of the individual aggregates.
STEPS = 150
#: Every aggregate is solved with the first loss, these also with the others.
EVERY_LOSS = ("average", "close", "close_decay")
_BLOCK = 1 << 23  # scores in memory at a time


@dataclass(frozen=True)
class ComparePlan:
    """The settings of a comparison.

    The first loss is used for close-k and every aggregate; `average` and close-k are also solved with the others.
    ``only`` names the contenders that take part besides those that the verdict needs, ``extra`` additional ones;
    ``everyone`` adds all that are installed. ``aggregates``: whether the individual aggregates take part;
    ``jobs`` = 0 means one process per core.
    """

    splits: int = 10
    losses: tuple[str, ...] = ("logistic",)
    multiclass: str = "top_two"
    metric: str = "accuracy"
    extra: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    everyone: bool = False
    aggregates: bool = False
    seed: int = 0
    jobs: int = 0
    squashed: bool = True

    def __post_init__(self) -> None:
        for loss in self.losses:
            lookup(LOSSES, loss, "loss")
        lookup(METRICS, self.metric, "metric")
        lookup(MULTICLASS, self.multiclass, "multiclass")
        if self.splits < 2:
            raise ValueError(f"--splits must be 2 or more, not {self.splits}: an interval needs at least two")

    @property
    def plain(self) -> str:
        """The contender that close-k is compared with."""
        return PLAIN.get(self.losses[0], PLAIN["logistic"])[0]

    def contenders(self) -> tuple[Contender, ...]:
        """Return the contenders, close-k and the plain model first; no package is imported unless it is named."""
        how = self.losses[0], self.multiclass
        usual: Sequence[str] = USUAL
        if self.everyone:
            usual = [*built_in(*how), *(name for name, trouble in libraries().items() if not trouble)]
        labels_only = self.metric in ("accuracy", "balanced_accuracy")  # a moved threshold has no other scores
        unfit = {*(() if self.squashed else (UNSQUASHED,)), *(() if labels_only else (EXACT_THRESHOLD,))}
        wanted = [CLOSE_K, self.plain, *(self.only or (name for name in usual if name not in unfit)), *self.extra]
        found = [contender_of(name, *how) for name in wanted if name != AGGREGATED]
        return tuple({contender.name: contender for contender in found}.values())


@dataclass(frozen=True, eq=False)
class Split:
    """The results of one split.

    ``rows`` and ``truth`` (test rows,) are the test rows and the codes of their classes; ``training`` is the size of
    the training part, ``known`` that of the training and validation parts together. ``trade`` pairs each k, as a share
    of the rows, with its best value on the validation part; the share 1 is the average loss. ``features`` names the
    columns of the matrix.
    """

    entries: tuple[Entry, ...]
    rows: Array
    truth: Array
    training: int
    known: int
    trade: tuple[tuple[float, float], ...] = ()
    features: tuple[str, ...] = field(default=(), repr=False)


def run_splits(
    table: Sheet, plan: ComparePlan, order: Order | None = None, contenders: Sequence[Contender] = ()
) -> Iterator[Split]:
    """Yield the results of one split after the other, for the given contenders or those of the plan."""
    check_classes(table, LEAST)
    table = table.parsed()
    order, contenders = order or Order(), contenders or plan.contenders()
    codes = np.unique(table.labels.astype(str), return_inverse=True)[1]
    divisions = order.divisions(codes, plan.splits, plan.seed)
    work = len(codes) * plan.splits * (int(codes.max()) + 1)
    jobs = min(plan.jobs or ((os.cpu_count() or 1) if work >= WORTH else 1), plan.splits)
    split = partial(_split, table, codes, plan, contenders, order)
    if jobs == 1:
        yield from map(split, divisions)
    else:
        yield from Parallel(n_jobs=jobs, backend="loky", return_as="generator")(map(delayed(split), divisions))


@threadpool_limits.wrap(1)  # type: ignore[untyped-decorator]  # threads of small models wait longer than they work
def _split(
    table: Sheet, codes: Array, plan: ComparePlan, contenders: Sequence[Contender], order: Order, parts: Parts
) -> Split:
    metric, known = METRICS[plan.metric], np.concatenate(parts[:2])

    def matrices(squashed: bool) -> tuple[list[Array], tuple[str, ...]]:
        recipe = Preprocessor.fit(table.frame.iloc[known], table.columns, squashed)
        return [recipe.matrix(table.frame.iloc[part]) for part in parts], tuple(recipe.names)

    X, features = matrices(plan.squashed)
    both = plan.squashed and any(contender.name == UNSQUASHED for contender in contenders)
    plain = matrices(squashed=False)[0] if both else []
    y, classes = [codes[part] for part in parts], len(np.unique(codes))
    data = SplitData(X, y, classes, *order.inner(codes, known), plain)
    entries, trade = aggregates(data, plan, metric) if plan.aggregates else ([], ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings at the edges of a grid do not converge
        entries += [contender.run(data, metric) for contender in contenders]
    entries.append(_majority(data, metric))
    return Split(tuple(entries), parts[2], data.y[2], len(parts[0]), len(known), trade, features)


def _majority(data: SplitData, metric: Metric) -> Entry:
    """Return the result of always predicting the largest class, with the shares of the classes as probabilities."""
    counts = np.maximum(np.bincount(data.known[1], minlength=data.classes), 0.5)
    scores = np.tile(np.log(softmax(np.log(counts))), (len(data.y[2]), 1))
    return Entry(MAJORITY, "", float(metric.value(data.y[2], scores)), scores.argmax(axis=1))


def problems_of(losses: Sequence[str]) -> list[Problem]:
    """Return the grid of `closecall fit`: every aggregate with the first loss, `average` and close-k with all losses.

    Every second alpha is enough for all but `average`, as in the first rounds of the search that `fit` runs.
    """
    found = []
    for place, loss in enumerate(losses):
        for name in AGGREGATES if place == 0 else EVERY_LOSS:
            takes = AGGREGATES[name].takes
            ks = (None,) if "k" not in takes else KS[-1:] if "m" in takes else KS
            counts = [(k, m) for k in ks for m in (MS[::2] if "m" in takes else (None,))]
            found += [
                Problem(loss, name, k, alpha, m)
                for k, m in counts
                for alpha in (ALPHAS if AGGREGATES[name].plain else ALPHAS[1::2])
            ]
    return found


def aggregates(
    data: SplitData, plan: ComparePlan, metric: Metric
) -> tuple[list[Entry], tuple[tuple[float, float], ...]]:
    """Return entries for every (loss, aggregate) and `average` with its threshold moved, and the value of each k."""
    problems, n = problems_of(plan.losses), len(data.y[0])
    problems += [problem for problem in problems if AGGREGATES[problem.aggregate].plain]
    moved = np.arange(len(problems)) >= len(problems_of(plan.losses))
    options = Options(STEPS, 1e-3, True, False, "ovr", dtype=np.float32, certify=False)
    values, sigmoid = _values(*_fitted(data.X[0], data.y[0], problems, moved, options), data, metric)
    shares = np.array([looks_at(problem, n) / n for problem in problems])
    places: dict[tuple[str, str], list[int]] = {}
    for place, problem in enumerate(problems):
        places.setdefault((EXACT if moved[place] else problem.aggregate, problem.loss), []).append(place)

    def rank(place: int) -> tuple[float, float, float]:  # ties go to the larger k, then to the larger alpha
        return round(float(values[place]), 12), shares[place], problems[place].alpha

    chosen = {key: max(mine, key=rank) for key, mine in places.items()}
    again = list(chosen.values())
    coef, intercept = _fitted(*data.known, [problems[place] for place in again], moved[again], options)
    entries = []
    for row, ((method, loss), place) in enumerate(chosen.items()):
        raw = scores_of(data.X[2], coef[row], intercept[row])
        scores = log_probabilities(raw, sigmoid[0][place], sigmoid[1][place]) if sigmoid else wide(raw)
        value = float(metric.value(data.y[2], scores))
        entries.append(Entry(method, loss, value, wide(raw).argmax(axis=1), shares[place] * n, problems[place].alpha))
    return entries, _trade(plan.losses[0], values, problems, shares)


def _fitted(X: Array, y: Array, problems: list[Problem], moved: Array, options: Options) -> tuple[Array, Array]:
    """Return coefficients (problems, scores, features) and intercepts, which minimise errors where ``moved``."""
    training = check_training(BaseEstimator(), X, y, None, None)
    models = fit_models(training, problems, options)
    intercept = models.intercept.copy()
    intercept[moved] = exact_intercepts(training, models.coef[moved], options)
    return models.coef, intercept


def _values(coef: Array, intercept: Array, data: SplitData, metric: Metric) -> tuple[Array, tuple[Array, Array] | None]:
    """Return values (problems,) on the validation part, and the sigmoids for probabilities, if needed."""
    values, pieces = np.empty(len(coef)), []
    size = max(1, _BLOCK // (len(data.y[1]) * data.classes))
    for begin in range(0, len(coef), size):
        block = slice(begin, begin + size)
        raw = scores_of(data.X[1], coef[block], intercept[block])
        scores = wide(raw)
        if metric.probabilities:
            pieces.append(sigmoids(raw, data.y[1]))
            scores = log_probabilities(raw, *pieces[-1])
        values[block] = metric.value(data.y[1], scores)
    if not pieces:
        return values, None
    slope, offset = (np.concatenate(part) for part in zip(*pieces, strict=True))
    return values, (slope, offset)


def _trade(loss: str, values: Array, problems: Sequence[Problem], shares: Array) -> tuple[tuple[float, float], ...]:
    found: dict[float, float] = {}
    for value, problem, share in zip(values, problems, shares, strict=False):
        aggregate = get_aggregate(problem.aggregate)
        if problem.loss == loss and (aggregate.plain or aggregate.decays):
            found[float(share)] = max(found.get(float(share), -np.inf), float(value))
    return tuple(sorted(found.items()))


def diagnosis_of(table: Sheet, squashed: bool = True) -> Diagnosis:
    """Measure the paper's four difficult cases on the whole table."""
    X: Any = Preprocessor.fit(table.frame, table.columns, squashed).matrix(table.frame)
    with threadpool_limits(1):
        return diagnose(X, table.labels.astype(str))


def looks_at(problem: Problem, n: int) -> float:
    """Return how many of n examples a problem's aggregate uses.

    Examples
    --------
    >>> [looks_at(Problem("logistic", name, 20, 1.0), 100) for name in ("average", "maximal", "close")]
    [100.0, 1.0, 20.0]
    """
    aggregate = get_aggregate(problem.aggregate)
    k, m = aggregate.counts(problem.k, problem.m, float(n))
    return k - m if aggregate.takes else float(aggregate.weights(np.arange(n, dtype=float), threshold=0.0).sum())
