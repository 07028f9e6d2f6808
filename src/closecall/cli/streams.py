"""Fit models in passes over the rows of Parquet files, locally or on a Dask cluster, for ``closecall fit``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from closecall._budget import LIMIT
from closecall._names import lookup
from closecall._signals import RunError
from closecall.report.text import counted
from closecall.table.read.dataset import DataError
from closecall.table.read.files import CELL_BYTES, expanded, suffix_of

from .console import err, out, plain, print_notes, say


def are_streamed(data: Sequence[str], requested: bool, cluster: str | None) -> bool:
    """Return whether to fit in passes: on request, if there are several files, or if they do not fit in memory."""
    from closecall.cluster.parquet_source import cells_of

    requested = requested or cluster is not None
    tables = [each for each in data if suffix_of(each) != ".parquet" and not expanded(each).is_dir()]
    if requested or len(data) > 1:
        if tables:
            why = "passes need" if requested else "several tables must be"
            raise DataError(f"{tables[0]!r} is not a Parquet file; {why} Parquet files, or a folder of them")
        return True
    path = expanded(data[0])
    return not tables and (path.is_dir() or (path.is_file() and CELL_BYTES * cells_of(str(path)) > LIMIT))


def tables_of(data: Sequence[str]) -> list[str]:
    """Return the tables to read in turn, with each folder replaced by its Parquet files."""
    from closecall.cluster.parquet_source import files_of

    folders = {each for each in data if each != "-" and expanded(each).is_dir()}
    return [path for each in data for path in (files_of(str(expanded(each))) if each in folders else [each])]


def fit_files(
    data: Sequence[str], output: Path, target: str, model: str, how: Any, reading: Any, cluster: str | None, jobs: int,
    as_json: bool, refused: dict[str, Any],
) -> None:  # fmt: skip
    """Fit a model and save it; ``refused`` maps options that do not apply here to their values."""
    from closecall.cluster import ClusterError
    from closecall.table.streamed import STREAMED, fit_streamed, schema_of

    for name, value in refused.items():
        if value:
            raise DataError(f"--{name} needs the table in memory; omit it, or fit a sample of the rows")
    lookup(STREAMED, model, "--model for fitting in passes")
    if not output.absolute().parent.is_dir():
        raise DataError(f"cannot write the model {str(output)!r}: there is no such folder")
    paths = [str(expanded(each)) for each in data]
    target, features, notes = schema_of(paths, target, reading.drop)
    try:
        with _source(paths, target, features, cluster, jobs) as source, _progress(as_json) as tell:
            found = fit_streamed(source, model, how, keep=reading.keep, callback=tell)
    except ClusterError as error:
        raise RunError(str(error)) from error
    found.model.save(str(output))
    _report(found, output, model, (*notes, *found.notes), len(source.files), as_json)


@contextmanager
def _source(
    paths: Sequence[str], target: str, features: Sequence[str], cluster: str | None, jobs: int
) -> Iterator[Any]:
    from closecall.cluster import ParquetSource

    if cluster is None:
        with closing(ParquetSource(paths, target, features=features, processes=jobs)) as source:
            yield source
        return
    from closecall.cluster.dask_source import DaskParquetSource, connected

    with connected("" if cluster == "local" else cluster, jobs if jobs > 1 else 0) as client:
        yield DaskParquetSource(paths, target, features=features, client=client)


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[Any], None]]:
    """Yield a callback that shows progress: one updated line on a terminal, otherwise one line or record per pass."""
    began = monotonic()
    status = err.status("pass 1") if err.is_terminal and not as_json else None

    def tell(event: Any) -> None:
        rows = f"{event.rows_done:,} of {event.rows_in_all:,}" if event.rows_in_all else f"{event.rows_done:,}"
        words = f"pass {event.number + 1} ({event.phase}): {rows} rows"
        if status is not None:
            status.update(words)
        elif event.partitions_done == event.partitions and as_json:
            say({"kind": "pass", "number": event.number + 1, "phase": event.phase, "rows": event.rows_done})
        elif event.partitions_done == event.partitions:
            err.print(f"{words}, {monotonic() - began:.0f} s", soft_wrap=True)

    with status or nullcontext():
        yield tell


def _report(found: Any, output: Path, model: str, notes: Sequence[str], files: int, as_json: bool) -> None:
    from closecall.table.measure import METRICS
    from closecall.table.train import chosen_words

    fitted, rows = found.model.classifier, sum(found.classes.values())
    why = chosen_words(fitted, model, METRICS["accuracy"])
    known = getattr(fitted, "best_score_", None)
    if as_json:
        say({
            "kind": "model", "path": str(output), "classifier": model, "why": why, "rows": rows,
            "classes": found.classes, "passes": found.passes, "accuracy": known, "notes": list(notes),
            "coefficients": found.model.coefficients[:100],
        })  # fmt: skip
        return
    classes = ", ".join(f"{name} ({count})" for name, count in list(found.classes.items())[:6])
    err.print(f"{counted(files, 'file')}, {rows:,} rows, {len(found.model.recipe.steps)} columns, "
              f"{found.passes} passes", style="bold")  # fmt: skip
    err.print(f"target {plain(found.model.target)}: {plain(classes)}", soft_wrap=True)
    print_notes(notes, err)
    if known is not None:
        err.print(f"accuracy {known:.2%} in cross-validation", soft_wrap=True)
    err.print(plain(why), soft_wrap=True)
    out.print(plain(output), soft_wrap=True)
