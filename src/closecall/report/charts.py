"""What every chart has in common: colours, data as plain values, tooltips, files; everything is offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from closecall._budget import address_space

from .text import visible

#: Okabe & Ito's colours, which all eyes can tell apart; the same method has the same colour everywhere.
COLOURS = {
    "close": "#0072B2",
    "close_decay": "#D55E00",
    "atk": "#009E73",
    "average": "#000000",
    "top": "#CC79A7",
}
Record = dict[str, Any]


def plain_data(records: Sequence[Record]) -> Any:
    # Plain values, not a frame: the chart's JSON is then exactly what is written here.
    return alt.Data(values=[{name: _plain(value) for name, value in record.items()} for record in records])


def _plain(value: Any) -> Any:
    # A control character in a text makes vl-convert abort the whole process.
    return value.item() if isinstance(value, np.generic) else visible(value)


def tips(**formats: str) -> list[Any]:
    """What hovering shows: field -> format, with an underscore for a space; no format for text."""
    return [
        alt.Tooltip(f"{name}:Q", format=spec, title=name.replace("_", " "))
        if spec
        else alt.Tooltip(f"{name}:N", title=name.replace("dataset", "data set"))
        for name, spec in formats.items()
    ]


#: Address space without which vl-convert, which reserves very much and uses little of it, ends the whole process.
ADDRESS_SPACE = 1 << 38


def check_room() -> None:
    """Refuse to draw under a limit of the address space, where drawing would end the process."""
    limit = address_space()
    if limit is not None and limit < ADDRESS_SPACE:
        raise ValueError(
            f"charts cannot be drawn with an address space of {limit >> 20} MiB: lift the limit (ulimit -v unlimited)"
        )


FORMATS = ("svg", "png", "pdf")


def write(chart: Any, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Save a chart as ``stem.svg`` and so on; return the paths."""
    check_room()
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats]
    for path in paths:
        chart.save(str(path), **({"ppi": 144} if path.suffix == ".png" else {}))
    return paths


def side_by_side(charts: Sequence[Any]) -> Any:
    """Charts in a row."""
    return alt.hconcat(*charts)
