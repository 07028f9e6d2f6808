"""Charts for a comparison, and parts shared by all charts (colours, data, tooltips, pictures); all work offline."""

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
    """Return a colour that shows significance: the colour of close decay if significant, otherwise grey."""
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


#: Address space, in bytes, below which vl-convert ends the whole process; it reserves a lot of memory but uses little
#: of it.
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
    """Return a context in which Altair does not validate charts, because validation takes longer than drawing.

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


#: Charts are as wide as the page, whose script sets the width before drawing.
_WIDTH = 760


def _across(field: str, title: str) -> Any:
    """Return the value axis, with a tick every 70 pixels to keep the labels apart."""
    return alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=alt.ExprRef("ceil(width / 70)")))


def gains(summaries: Sequence[Row], splits: Sequence[Row], title: str) -> Any:
    """Draw the gain of every method over the plain model on the same splits, in grey if it is not significant.

    Summaries (best first) have the fields ``method``, ``mean``, ``low``, ``high`` and ``p``; splits have ``method``,
    ``split`` and ``difference``. ``title`` is the axis title.
    """
    shown = [{**each, "sure": significance(each["p"]), "difference": each["mean"]} for each in summaries]
    points = {"method": "", "split": "d", "difference": "+.3g"}
    return _intervals(shown, splits, points, title, 22, alt.Legend(symbolOpacity=1, orient="bottom"), p=".2g")


def _intervals(
    shown: Sequence[Row], splits: Sequence[Row], points: dict[str, str], title: str, step: int, legend: Any, **more: str
) -> Any:
    """Draw dots for splits, and ticks on pale intervals for summaries; the first entry of ``points`` is the y-axis."""
    name, *_, field = points
    order = list(dict.fromkeys(record[name] for record in shown))
    y, x = alt.Y(f"{name}:N", sort=order, title=None, axis=alt.Axis(labelLimit=230)), _across(field, title)
    dotted = (
        chart_of(splits)
        .mark_point(filled=True, size=22, opacity=0.55, color="#555555")
        .encode(x=x, y=y, tooltip=tips(**points))
    )
    base = chart_of(shown).encode(
        y=y, color=by_significance("sure", "#777777", legend=legend),
        tooltip=tips(**{name: ""}, mean="+.3g", low="+.3g", high="+.3g", **more),
    )  # fmt: skip
    bars = base.mark_rule(strokeWidth=9, opacity=0.3).encode(x=_across("low", title), x2="high:Q")
    means = base.mark_tick(thickness=3, size=15, opacity=1).encode(x=x)
    return alt.layer(level(x=x), bars, means, dotted).properties(
        width=_WIDTH, height=step * len(shown), autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        usermeta={"fill": True},
    )  # fmt: skip


def coefficients(records: Sequence[Row]) -> Any:
    """Draw the coefficients of close-k on every split, largest first, in grey if the interval includes zero.

    Records have ``name``, ``split``, ``value``, ``mean``, ``low`` and ``high``.
    """
    shown = [{**r, "value": r["mean"], "sure": significance(0.0 if r["low"] * r["high"] > 0 else 1.0)}
             for r in records if r["split"] == 1]  # fmt: skip
    points = {"name": "", "split": "d", "value": "+.3g"}
    return _intervals(shown, records, points, "coefficient (columns scaled to variance 1)", 20, None)
