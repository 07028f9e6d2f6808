"""Shared parts of charts: colours, data as plain values, tooltips, files; everything is offline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from altair.utils.mimebundle import spec_to_mimebundle
from altair.utils.schemapi import debug_mode

from closecall._budget import address_space

from .formats import Row
from .text import visible

#: Okabe & Ito's colours, which all eyes can tell apart; the same method has the same colour everywhere.
COLOURS = {
    "close": "#0072B2",
    "close_decay": "#D55E00",
    "atk": "#009E73",
    "average": "#000000",
    "top": "#CC79A7",
}
LOSS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")


def chart_of(records: Sequence[Row]) -> Any:
    """A chart without marks; its data are plain values, not a frame, which keeps its JSON predictable."""
    return alt.Chart(alt.Data(values=[{name: _plain(value) for name, value in r.items()} for r in records]))


def _plain(value: Any) -> Any:
    # JSON has no NaN, and a control character in a text makes vl-convert abort the whole process.
    value = value.item() if isinstance(value, np.generic) else visible(value)
    return None if isinstance(value, float) and not np.isfinite(value) else value


def dots(records: Sequence[Row], *, size: int, opacity: float | None = None, **encodings: Any) -> Any:
    """A filled point for each record."""
    look = {} if opacity is None else {"opacity": opacity}
    return chart_of(records).mark_point(filled=True, size=size, **look).encode(**encodings)


def dashed_line(records: Sequence[Row], x: Any, y: Any) -> Any:
    """A thin dashed line through two points."""
    return chart_of(records).mark_line(color="#555555", strokeDash=[4, 4], strokeWidth=1).encode(x=x, y=y)


def level(**place: Any) -> Any:
    """A dashed rule at zero along ``x`` or ``y``."""
    ((axis, encoding),) = place.items()
    field = str(encoding.shorthand).partition(":")[0]
    return chart_of([{field: 0}]).mark_rule(color="#555555", strokeDash=[4, 4]).encode(**{axis: encoding})


def significance(p: float) -> str:
    """The side of 0.05 on which a p-value lies, as :func:`by_significance` colours it."""
    return "p < 0.05" if p < 0.05 else "p >= 0.05"


def by_significance(field: str, other: str = "#999999", **options: Any) -> Any:
    """Colour by significance: that of close decay, or grey."""
    scale = alt.Scale(domain=["p < 0.05", "p >= 0.05"], range=[COLOURS["close_decay"], other])
    return alt.Color(f"{field}:N", title=None, scale=scale, **options)


def by_loss(losses: Sequence[str]) -> Any:
    """Colour by loss."""
    scale = alt.Scale(domain=list(losses), range=list(LOSS_COLOURS[: len(losses)]))
    return alt.Color("loss:N", title=None, scale=scale)


def tips(**formats: str) -> list[Any]:
    """Tooltips: field -> format, with an underscore for a space; no format for text."""
    return [
        alt.Tooltip(f"{name}:Q", format=spec, title=name.replace("_", " "))
        if spec
        else alt.Tooltip(f"{name}:N", title=name.replace("dataset", "data set"))
        for name, spec in formats.items()
    ]


#: Address space without which vl-convert, which reserves very much and uses little of it, ends the whole process.
ADDRESS_SPACE = 1 << 38


def check_room() -> None:
    """Refuse to draw if the address space is limited, because drawing would kill the process."""
    limit = address_space()
    if limit is not None and limit < ADDRESS_SPACE:
        raise ValueError(
            f"charts cannot be drawn with the address space limited to {limit >> 20} MiB: lift the limit "
            "(ulimit -v unlimited)"
        )


def unchecked() -> Any:
    """A context in which Altair does not validate the parts of a chart, which would take longer than drawing it.

    The tests check every complete chart, see :func:`specification`.
    """
    return debug_mode(False)


def specification(chart: Any) -> dict[str, Any]:
    """A chart as plain values for Vega-Lite; plain values are returned unchanged."""
    return chart if isinstance(chart, dict) else chart.to_dict(validate=False)


def draw(specification: dict[str, Any]) -> str:
    """The picture of a specification, as SVG."""
    check_room()
    drawn = spec_to_mimebundle(specification, "svg", mode="vega-lite")
    (content,) = (drawn[0] if isinstance(drawn, tuple) else drawn).values()
    return str(content)


def side_by_side(charts: Sequence[Any]) -> Any:
    """Charts in a row."""
    return alt.hconcat(*charts)


_MARK = re.compile(r'<path transform="translate\(([-\d.]+),([-\d.]+)\)" (d="[^"]*"[^>]*)/>')
_NUMBERS = re.compile(r'(?<= )(?:transform|d|x|y|x1|x2|y1|y2|width|height)="[^"]*"')


def slim(svg: str) -> str:
    """A smaller version of a picture.

    A tenth of a pixel is precise enough, and descriptions of single marks for screen readers are never read in an
    embedded picture.

    Examples
    --------
    >>> slim('<path aria-label="a: 1.234" role="x" d="M1.2345,6" opacity="0.85"/>')
    '<path d="M1.2,6" opacity="0.85"/>'
    """
    svg = re.sub(r' (?:aria-\w+|role|pointer-events|class)="[^"]*"', "", svg)
    svg = _NUMBERS.sub(lambda found: re.sub(r"-?\d+\.\d\d+", lambda n: f"{float(n[0]):.1f}", found[0]), svg)
    # A mark that is drawn many times is described once; the places alone remain.
    often = {mark: f"m{i}" for i, (mark, n) in enumerate(Counter(m[3] for m in _MARK.finditer(svg)).items()) if n > 9}
    svg = _MARK.sub(lambda m: f'<use href="#{often[m[3]]}" x="{m[1]}" y="{m[2]}"/>' if m[3] in often else m[0], svg)
    marks = "".join(f'<path id="{name}" {mark}/>' for mark, name in often.items())
    return re.sub(r"(<svg[^>]*>)", rf"\1<defs>{marks}</defs>", svg, count=1) if often else svg
