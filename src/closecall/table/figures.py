"""Charts of a comparison, each as wide as the page; every function takes flat records and returns a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from closecall.report.charts import COLOURS, by_significance, chart_of, dots, level, significance, tips
from closecall.report.formats import Row

#: The family of a method -> its colour, with the same hues as in the other figures.
FAMILIES = {
    "close-k": COLOURS["close_decay"],
    "linear": COLOURS["average"],
    "aggregate": COLOURS["close"],
    "tree": COLOURS["top"],
    "other": COLOURS["atk"],
    "no model": "#777777",
}
_WIDTH = 760


def _filling(chart: Any, height: float) -> Any:
    """Make a chart as wide as the page, whose script sets the width before drawing."""
    return chart.properties(
        width=_WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        usermeta={"fill": True},
    )  # fmt: skip


def _across(field: str, title: str, **options: Any) -> Any:
    """Return the value axis, with a tick every 70 pixels to keep the labels apart."""
    return alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=alt.ExprRef("ceil(width / 70)")), **options)


def _names(summaries: Sequence[Row], field: str = "method") -> Any:
    order = list(dict.fromkeys(record[field] for record in summaries))
    return alt.Y(f"{field}:N", sort=order, title=None, axis=alt.Axis(labelLimit=230))


def gains(summaries: Sequence[Row], splits: Sequence[Row], title: str) -> Any:
    """Draw the gain of every method over the plain one on the same splits, in grey if not significant.

    Summaries (best first) have the fields ``method``, ``mean``, ``low``, ``high`` and ``p``; splits have ``method``,
    ``split`` and ``difference``. ``title`` is the axis title.
    """
    shown = [{**each, "sure": significance(each["p"]), "difference": each["mean"]} for each in summaries]
    points = {"method": "", "split": "d", "difference": "+.3g"}
    return _intervals(shown, splits, points, title, 22, alt.Legend(symbolOpacity=1, orient="bottom"), p=".2g")


def _intervals(
    shown: Sequence[Row], splits: Sequence[Row], points: dict[str, str], title: str, step: int, legend: Any, **more: str
) -> Any:
    """Draw a dot for each split and a tick on a pale interval for each summary; ``points`` starts with the row."""
    name, *_, field = points
    y, x = _names(shown, name), _across(field, title)
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
    return _filling(alt.layer(level(x=x), bars, means, dotted), step * len(shown))


def ranking(summaries: Sequence[Row], splits: Sequence[Row], title: str) -> Any:
    """Draw every method, with a dot for each split, the mean and its interval.

    Summaries (best first) have the fields ``method``, ``family``, ``mean``, ``low`` and ``high``; splits have
    ``method``, ``family``, ``split``, ``value``, ``k`` and ``alpha``.
    """
    present = [family for family in FAMILIES if family in {record["family"] for record in summaries}]
    one = alt.selection_point(fields=["family"], bind="legend", name="family")
    colour = alt.Color(
        "family:N", title=None, scale=alt.Scale(domain=present, range=[FAMILIES[family] for family in present]),
        legend=alt.Legend(symbolOpacity=1, orient="bottom"),
    )  # fmt: skip

    def bright(value: float, dim: float) -> Any:
        return alt.condition(one, alt.value(value), alt.value(dim))

    y, x = _names(summaries), _across("value", title, scale=alt.Scale(zero=False))
    tooltip = tips(method="", split="d", value=".4g", k="", alpha="")
    points = dots(splits, size=26, x=x, y=y, color=colour, tooltip=tooltip).encode(opacity=bright(0.6, 0.06))
    base = chart_of([{**record, "value": record["mean"]} for record in summaries]).encode(
        y=y, color=colour, tooltip=tips(method="", mean=".4g", low=".4g", high=".4g")
    )
    ends = {"x": _across("low", title), "x2": "high:Q"}
    bars = base.mark_rule(strokeWidth=9).encode(**ends, opacity=bright(0.28, 0.06))
    means = base.mark_tick(thickness=3, size=15).encode(x=x, opacity=bright(1.0, 0.12))
    return _filling(alt.layer(bars, means, points), 19 * len(summaries)).add_params(one)


def trade(records: Sequence[Row], title: str) -> Any:
    """Draw the value of each k on the validation parts, with a thin line for each split and a thick one for the mean.

    Records have ``split``, ``share``, ``value`` and ``mean``.
    """
    low = min(record["share"] for record in records)
    scale = alt.Scale(type="log", domain=[0.8 * low, 1.25], nice=False)
    ticks = sorted({record["share"] for record in records})
    x = alt.X("share:Q", title="k / rows (1: the average loss)", scale=scale,
              axis=alt.Axis(values=ticks, format="~g"))  # fmt: skip
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    base = chart_of(records).encode(x=x, y=y, tooltip=tips(split="d", share="~g", value=".4g"))
    lines = base.mark_line(strokeWidth=1, opacity=0.35, color=COLOURS["close"], point=True).encode(detail="split:N")
    means = [{"share": r["share"], "value": r["mean"], "split": 0} for r in records if r["split"] == 1]
    thick = chart_of(means).mark_line(strokeWidth=3, color=COLOURS["close_decay"], point=True).encode(
        x=x, y=y, tooltip=tips(share="~g", value=".4g")
    )  # fmt: skip
    return _filling(alt.layer(lines, thick), 240)


def coefficients(records: Sequence[Row]) -> Any:
    """Draw the coefficients of close-k on every split, the largest first, in grey if the interval includes zero.

    Records have ``name``, ``split``, ``value``, ``mean``, ``low`` and ``high``.
    """
    shown = [{**r, "value": r["mean"], "sure": significance(0.0 if r["low"] * r["high"] > 0 else 1.0)}
             for r in records if r["split"] == 1]  # fmt: skip
    points = {"name": "", "split": "d", "value": "+.3g"}
    return _intervals(shown, records, points, "coefficient (columns scaled to variance 1)", 20, None)
