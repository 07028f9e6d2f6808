"""Run every contender on the same splits of one table.

A split has a training part (50 %), a validation part (25 %) and a test part (25 %). Preprocessing is fitted to the
training and validation parts. Every contender is tuned on the same parts and scored on the test part. Splits run in
separate processes, with one BLAS thread each.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from closecall._names import Array
from closecall.aggregates import AGGREGATES
from closecall.linear import Diagnosis, diagnose
from closecall.table.read.sheet import Sheet

from .contenders import (
    CLOSE_K,
    EXACT_THRESHOLD,
    LARGEST,
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
from .measure import METRICS
from .preprocess import Preprocessor
from .tuning import How, SplitData

#: A class needs this many rows to be in all three parts.
LEAST = 4
#: Rows x splits x classes below which separate processes cost more time than they save.
WORTH = 20_000


@dataclass(frozen=True, eq=False)
class ComparePlan(How):
    """The settings of a comparison, in addition to those for training models.

    The contenders that the verdict needs always take part. ``only`` lists the others, and ``extra`` lists additional
    ones; ``everyone`` adds all that are installed. ``jobs`` = 0 means one process per core.
    """

    splits: int = 10
    extra: Sequence[str] = ()
    only: Sequence[str] = ()
    everyone: bool = False
    seed: int = 0
    jobs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.splits < 2:
            raise ValueError(f"--splits must be 2 or more, not {self.splits}: an interval needs at least two splits")

    @property
    def plain(self) -> tuple[str, str, str]:
        """The contender that close-k is compared with: its name, its verdict, and its name in words."""
        name, verdict, words = PLAIN.get(self.loss, PLAIN["logistic"])
        return name, verdict, words.replace("plain ", "") if self.squashed else words

    def contenders(self) -> tuple[Contender, ...]:
        """Return the contenders, with close-k and the plain model first; no package is imported unless it is named."""
        usual: Sequence[str] = USUAL
        if self.everyone:
            ours = (name for name in built_in(self) if name not in AGGREGATES)
            usual = [*ours, *(name for name, trouble in libraries().items() if not trouble)]
        labels_only = self.metric in ("accuracy", "balanced_accuracy")  # moving a threshold does not change scores
        unfit = {*(() if self.squashed else (UNSQUASHED,)), *(() if labels_only else (EXACT_THRESHOLD,))}
        wanted = [CLOSE_K, self.plain[0], *(self.only or (name for name in usual if name not in unfit)), *self.extra]
        found = [contender_of(name, self) for name in wanted]
        return tuple({contender.name: contender for contender in found}.values())


@dataclass(frozen=True, eq=False)
class Split:
    """The results of one split, by contender.

    ``rows`` and ``truth`` (test rows,) are the test rows and the codes of their classes. ``training`` is the size of
    the training part, and ``known`` is the size of the training and validation parts together. ``features`` names the
    columns of the matrix.
    """

    entries: dict[str, Entry]
    rows: Array
    truth: Array
    training: int
    known: int
    features: tuple[str, ...] = field(default=(), repr=False)


def run_splits(
    table: Sheet, plan: ComparePlan, order: Order | None = None, contenders: Sequence[Contender] = ()
) -> Iterator[Split]:
    """Yield the results of each split for the given contenders; by default, these are the contenders of the plan."""
    table = table.parsed()
    order, contenders = order or Order(), (*(contenders or plan.contenders()), LARGEST)
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
    frames = [table.frame.iloc[part] for part in parts]
    recipe = Preprocessor.fit(table.frame.iloc[known], table.columns, plan.squashed)
    X, plain = [recipe.matrix(frame) for frame in frames], list[Array]()
    if plan.squashed and any(contender.name == UNSQUASHED for contender in contenders):
        unsquashed = Preprocessor.fit(table.frame.iloc[known], table.columns, squashed=False)
        plain = [unsquashed.matrix(frame) for frame in frames]
    data = SplitData(X, [codes[part] for part in parts], len(np.unique(codes)), *order.inner(codes, known), plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings at the edges of a grid do not converge
        entries = {contender.name: contender.run(data, metric) for contender in contenders}
    return Split(entries, parts[2], data.y[2], len(parts[0]), len(known), tuple(recipe.names))


def diagnosis_of(table: Sheet, squashed: bool = True) -> Diagnosis:
    """Measure how far each of the paper's four difficult cases applies to the whole table."""
    X: Any = Preprocessor.fit(table.frame, table.columns, squashed).matrix(table.frame)
    with threadpool_limits(1):
        return diagnose(X, table.labels.astype(str))
