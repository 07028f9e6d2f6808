"""Read untrusted Parquet files in pieces, and only up to a limit.

Dictionary and run-length encoding can expand a few hundred bytes to gigabytes of text. Text columns are therefore read
as dictionaries, which are as small in memory as in the file, and their expanded size is counted before allocation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from closecall._budget import LIMIT

from .dataset import DataError
from .files import CELL_BYTES, check_columns

#: Number of rows decoded at a time.
BATCH = 1 << 16


def stream_parquet(path: Path, rows: int, limit: int, *, whole: bool = False) -> Iterator[Any]:
    """Yield frames of at most ``rows`` rows, each of at most ``limit`` bytes; an empty file gives one empty frame.

    If ``whole`` is true, a single frame contains all rows.
    """
    if not path.is_file():
        raise DataError(f"cannot read {str(path)!r}: no such file")
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"reading {str(path)!r} needs pyarrow: pip install pyarrow, or save it as CSV") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            plain = _check(file, str(path), limit if whole else 0)
        texts = [field.name for field in plain if _is_text(field.type)]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            batches = _bounded(file.iter_batches(batch_size=rows), str(path), limit, whole)
            if whole or not file.metadata.num_rows:
                yield _frame([*batches], file.schema_arrow, plain)
            else:
                yield from (_frame([batch], file.schema_arrow, plain) for batch in batches)
    except (DataError, GeneratorExit):
        raise
    except Exception as error:  # a forged file can raise almost anything in pyarrow and pandas
        detail = " ".join(str(error).split())[:200]
        raise DataError(f"{str(path)!r} is truncated or not a Parquet file ({detail})") from error


def _check(file: Any, what: str, limit: int) -> Any:
    """Return the schema of a file if it describes a table; with a limit, also check the stated size."""
    import pyarrow

    schema, rows = file.schema_arrow, file.metadata.num_rows
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise DataError(f"{what}: the columns {', '.join(map(repr, twice[:5]))} appear more than once; rename them")
    nested = [field.name for field in schema if field.type.num_fields and not pyarrow.types.is_dictionary(field.type)]
    if nested:
        raise DataError(f"{what}: the column {nested[0]!r} contains lists or structures; convert it to plain columns")
    check_columns(len(schema), what)
    widths = [
        CELL_BYTES + (field.type.byte_width if pyarrow.types.is_fixed_size_binary(field.type) else 0)
        for field in schema
    ]
    # The pieces of a stream are checked one by one, but a single row can already be too wide.
    if sum(widths) * max(rows if limit else 1, 1) > (limit or LIMIT):
        size = f"{rows} rows x {len(schema)} columns"
        raise DataError(f"{what} unpacks to {size}, which is too much; use fewer rows or columns")
    return schema


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _bounded(batches: Iterator[Any], what: str, limit: int, whole: bool) -> Iterator[Any]:
    size = 0
    for batch in batches:
        size = (size if whole else 0) + sum(map(_plain_bytes, batch.columns))
        if size > limit:
            raise DataError(f"{what} needs more than the {limit} bytes allowed when unpacked")
        yield batch


def _plain_bytes(column: Any) -> int:
    """Return the size of a column once its dictionary is expanded."""
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return max(int(column.nbytes), CELL_BYTES * len(column))
    lengths = compute.binary_length(column.dictionary).cast("int64")
    return CELL_BYTES * len(column) + (compute.sum(lengths.take(column.indices)).as_py() or 0)


def _frame(batches: list[Any], coded: Any, plain: Any) -> Any:
    """Return batches as one pandas frame, with dictionary columns expanded to text."""
    import pyarrow

    table = pyarrow.Table.from_batches(batches, coded).cast(plain)
    table.validate(full=True)  # otherwise invalid UTF-8 raises an error later, wherever it is read
    return table.to_pandas()
