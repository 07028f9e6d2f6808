"""Charts of a comparison, each as wide as the page; every function takes flat records and returns a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from closecall.report.charts import by_significance, chart_of, level, significance, tips
from closecall.report.formats import Row

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
    """Draw a dot for each split and a tick on a pale interval for each summary; ``points`` lists the y-axis first."""
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
    # The chart is as wide as the page, whose script sets the width before drawing.
    return alt.layer(level(x=x), bars, means, dotted).properties(
        width=_WIDTH, height=step * len(shown), autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        usermeta={"fill": True},
    )  # fmt: skip


def coefficients(records: Sequence[Row]) -> Any:
    """Draw the coefficients of close-k on every split, the largest first, in grey if the interval includes zero.

    Records have ``name``, ``split``, ``value``, ``mean``, ``low`` and ``high``.
    """
    shown = [{**r, "value": r["mean"], "sure": significance(0.0 if r["low"] * r["high"] > 0 else 1.0)}
             for r in records if r["split"] == 1]  # fmt: skip
    points = {"name": "", "split": "d", "value": "+.3g"}
    return _intervals(shown, records, points, "coefficient (columns scaled to variance 1)", 20, None)
