"""Shared parts of charts: colours, data as plain values, tooltips and pictures; everything works offline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from altair.utils.mimebundle import spec_to_mimebundle
from altair.utils.schemapi import debug_mode

from closecall._budget import address_space

from .formats import Row
from .text import visible

#: Okabe & Ito's colours, which colour-blind readers can distinguish; a method has the same colour everywhere.
COLOURS = {
    "close": "#0072B2",
    "close_decay": "#D55E00",
    "atk": "#009E73",
    "average": "#000000",
    "top": "#CC79A7",
}


def chart_of(records: Sequence[Row]) -> Any:
    """Return a chart without marks; its data are plain values rather than a frame, so that its JSON is predictable."""
    return alt.Chart(alt.Data(values=[{name: _plain(value) for name, value in r.items()} for r in records]))


def _plain(value: Any) -> Any:
    # JSON has no NaN, and a control character makes vl-convert abort the whole process.
    value = value.item() if isinstance(value, np.generic) else visible(value)
    return None if isinstance(value, float) and not np.isfinite(value) else value


def level(**place: Any) -> Any:
    """Return a dashed rule at zero along ``x`` or ``y``."""
    ((axis, encoding),) = place.items()
    field = str(encoding.shorthand).partition(":")[0]
    return chart_of([{field: 0}]).mark_rule(color="#555555", strokeDash=[4, 4]).encode(**{axis: encoding})


def significance(p: float) -> str:
    """Return the category of a p-value for :func:`by_significance`."""
    return "p < 0.05" if p < 0.05 else "p >= 0.05"


def by_significance(field: str, other: str = "#999999", **options: Any) -> Any:
    """Return a colour for significance: the colour of close decay, or grey."""
    scale = alt.Scale(domain=["p < 0.05", "p >= 0.05"], range=[COLOURS["close_decay"], other])
    return alt.Color(f"{field}:N", title=None, scale=scale, **options)


def tips(**formats: str) -> list[Any]:
    """Return tooltips for fields, given their formats (empty for text); underscores in names are shown as spaces."""
    return [
        alt.Tooltip(f"{name}:Q", format=spec, title=name.replace("_", " "))
        if spec
        else alt.Tooltip(f"{name}:N", title=name.replace("dataset", "data set"))
        for name, spec in formats.items()
    ]


#: Address space, in bytes, below which vl-convert ends the whole process; it reserves much and uses little.
ADDRESS_SPACE = 1 << 38


def check_room() -> None:
    """Raise an error if the address space is limited, because drawing would then crash the process."""
    limit = address_space()
    if limit is not None and limit < ADDRESS_SPACE:
        raise ValueError(
            f"charts cannot be drawn with the address space limited to {limit >> 20} MiB: lift the limit "
            "(ulimit -v unlimited)"
        )


def unchecked() -> Any:
    """Return a context in which Altair does not validate charts, which would take longer than drawing them.

    The tests validate every complete chart.
    """
    return debug_mode(False)


def specification(chart: Any) -> dict[str, Any]:
    """Return a chart as plain values for Vega-Lite; plain values are returned unchanged."""
    return chart if isinstance(chart, dict) else chart.to_dict(validate=False)


def draw(specification: dict[str, Any]) -> str:
    """Render a specification as SVG."""
    check_room()
    drawn = spec_to_mimebundle(specification, "svg", mode="vega-lite")
    (content,) = (drawn[0] if isinstance(drawn, tuple) else drawn).values()
    return str(content)
