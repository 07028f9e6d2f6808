"""Compare methods on a table or a file with one call, from the command line or in a notebook."""

from __future__ import annotations

import html
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from closecall.linear import Diagnosis
from closecall.report.formats import Row
from closecall.table.read.dataset import need_pandas
from closecall.table.read.sheet import Reading, Sheet, sheet_of

from . import content
from .check import check_table, hints, opinions_of
from .compare import LEAST, ComparePlan, Split, diagnosis_of, run_splits
from .conclude import Conclusion, conclude
from .divide import Order
from .preprocess import Preprocessor
from .report import PRECISION, as_records, write
from .table import check_classes, read

#: Number of rows to check that a notebook shows.
SHOWN = 10


@dataclass(frozen=True, eq=False)
class TableComparison:
    """The result of :func:`compare`; notebooks display it as a page.

    ``hints`` lists what to check before trusting the verdict, and ``rows`` is a data frame of rows to check, numbered
    from 0, as returned by :func:`closecall.check_rows`.
    """

    table: Sheet
    comparison: Conclusion
    diagnosis: Diagnosis
    splits: Sequence[Split]
    hints: tuple[str, ...]
    arguments: Sequence[str]
    order: Order = field(default_factory=Order)
    rows: Any = None

    @property
    def verdict(self) -> str:
        """The method to use, in one sentence."""
        return content.sentence(self.comparison.text)

    @property
    def use(self) -> str:
        """The name of the method to use, for ``closecall fit --model``."""
        return self.comparison.use

    @property
    def results(self) -> Any:
        """A data frame with a row for each method, sorted from best to worst."""
        return need_pandas().DataFrame(content.rows(self.comparison))

    @property
    def columns(self) -> Any:
        """A data frame that states how each column was read, with notes."""
        return need_pandas().DataFrame(content.described(self.table), columns=content.DESCRIBED)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the columns were read, and on what to check before trusting the verdict."""
        return (*self.table.notes, *self.hints)

    @property
    def command(self) -> str:
        """The command line that repeats the comparison."""
        return shlex.join(["closecall", *self.arguments])

    def records(self) -> list[Row]:
        """Return the results as ``closecall compare --json`` prints them, with the verdict last."""
        return as_records(self)

    def save(self, path: str | Path) -> list[Path]:
        """Write the page (``report.html``), the results and the rows to check; return the paths, page first."""
        return write(self, Path(path))

    def __repr__(self) -> str:
        return f"<TableComparison of {self.table.name}: {self.verdict}>"

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        results = self.results.iloc[:, :7].to_html(index=False, float_format=lambda v: f"{v:.2f}", na_rep="")
        rows = self.rows.head(SHOWN).to_html(index=False, float_format=lambda v: f"{v:.2f}")
        return (
            f"<h3>{html.escape(self.verdict)}</h3><p>{html.escape(content.sentence(self.comparison.reason))}</p>"
            f"<ul>{notes}</ul>{results}<h4>Rows to check, {min(SHOWN, len(self.rows))} of {len(self.rows)}</h4>"
            f"{rows}<p>{html.escape(PRECISION)}</p>"
        )


def compare(
    data: Any,
    target: str = "",
    *,
    splits: int = 10,
    rows: int = 5000,
    metric: str = "accuracy",
    extra: Sequence[str] = (),
    only: Sequence[str] = (),
    everyone: bool = False,
    groups: str = "",
    time: str = "",
    loss: str = "logistic",
    multiclass: str = "top_two",
    squash: bool = True,
    reading: Reading | None = None,
    seed: int = 0,
    jobs: int = 0,
    arguments: Sequence[str] = (),
    begin: Callable[[Sheet, Sequence[str]], None] | None = None,
    progress: Callable[..., Iterable[Any]] | None = None,
) -> TableComparison:
    """Compare close-k with logistic regression, a forest and boosting on a table, and recommend one of them.

    Parameters
    ----------
    data : data frame or str
        A table, the path to a CSV, TSV or Parquet file, or the name of a data set.
    target : str
        The column to predict; by default the one named target, class, label or y, otherwise the last one.
    splits, rows : int
        Number of random splits, and the maximum number of rows to use, stratified by class (0 for all).
    metric : str
        ``accuracy``, ``balanced_accuracy``, ``f1``, ``log_loss`` or ``auc``.
    extra, only, everyone : sequences of str, bool
        Contenders to add, the only contenders to use, and whether to use all contenders.
    groups, time : str
        A column of groups that are never split between parts, or a column by which rows are ordered in time.
    loss, multiclass : str
        The loss for close-k and the aggregates, and how they handle more than two classes: ``ovr``, ``top_two`` or
        ``softmax``.
    squash, reading : bool, Reading
        Whether to squash extreme cells, as in :class:`closecall.SquashingScaler`, and how to read the columns.
    seed, jobs : int
        Seed for all random numbers, and number of processes (0 for one per core).
    arguments, begin, progress
        Used by the command line: its arguments, a callback that receives the table and the hints before the splits
        run, and a callback that shows progress.

    Returns
    -------
    TableComparison
        It has a ``verdict``, ``results``, ``rows`` to check and ``columns``; ``save("report.html")`` writes a page.

    Examples
    --------
    >>> found = compare("monk3", splits=2, only=("logistic_regression",), jobs=1)
    >>> found.results["method"].tolist(), found.use
    (['close-k', 'LogisticRegression', 'always the largest class'], 'close_k')
    """
    plan = ComparePlan(
        loss, multiclass, metric, squash, splits=splits, extra=extra, only=only, everyone=everyone, seed=seed, jobs=jobs
    )
    contenders = plan.contenders()  # an unknown name is reported before a large table is read
    if hasattr(data, "columns"):
        table = sheet_of(data.reset_index(drop=True).rename(columns=str), target, reading)
    else:
        table = read(data, target, reading)
    order, table = Order.of(table.sample(rows, seed), groups, time)
    if squash:
        recipe = Preprocessor.fit(table.frame, table.columns)
        table = replace(table, notes=(*table.notes, *recipe.notes(table.frame)))
    check_classes(table, LEAST)
    hinted = hints(table)
    if begin:
        begin(table, hinted)
    running = run_splits(table, plan, order, contenders)
    found = list(progress(running, total=splits) if progress else running)
    return TableComparison(
        table, conclude(table, found, plan, contenders, order), diagnosis_of(table, squash), found, hinted,
        arguments or sys.argv[1:], order, check_table(table, opinions_of(table, found), seed),
    )  # fmt: skip
