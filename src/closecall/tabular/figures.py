"""Charts of one table's comparison: every method split by split, with intervals.

Each function takes flat records and returns a chart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from closecall.report.charts import (
    COLOURS,
    by_loss,
    by_significance,
    chart_of,
    dots,
    level,
    side_by_side,
    significance,
    tips,
)  # fmt: skip
from closecall.report.formats import Row

#: What kind of method it is -> its colour; the same hues as in the other figures.
FAMILIES = {
    "close-k": COLOURS["close_decay"],
    "average": COLOURS["average"],
    "other aggregates": COLOURS["close"],
    "scikit-learn": COLOURS["atk"],
    "tree": COLOURS["top"],
}
_WIDTH = 330


def _names(summaries: Sequence[Row]) -> Any:
    order = [record["method"] for record in summaries]
    return alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=205))


def ranking(summaries: Sequence[Row], splits: Sequence[Row], majority: float) -> Any:
    """Accuracy of every method: a dot for each split, the mean and its interval; dotted the largest class, if near.

    Parameters
    ----------
    summaries : records with ``method``, ``family``, ``mean``, ``low``, ``high``, best first
    splits : records with ``method``, ``family``, ``split``, ``accuracy``, ``k``, ``alpha``
    majority : float
        Accuracy in percent of always saying the largest class.
    """
    present = [family for family in FAMILIES if family in {record["family"] for record in summaries}]
    one = alt.selection_point(fields=["family"], bind="legend", name="family")
    colour = alt.Color(
        "family:N", title=None, scale=alt.Scale(domain=present, range=[FAMILIES[family] for family in present]),
        legend=alt.Legend(symbolOpacity=1),
    )  # fmt: skip

    def bright(value: float, dim: float) -> Any:
        return alt.condition(one, alt.value(value), alt.value(dim))

    y = _names(summaries)
    x = alt.X("accuracy:Q", title="test accuracy (%)", scale=alt.Scale(zero=False))
    tooltip = tips(method="", split="d", accuracy=".2f", k="", alpha="")
    points = dots(splits, size=26, x=x, y=y, color=colour, tooltip=tooltip).encode(opacity=bright(0.6, 0.06))
    base = chart_of([{**record, "accuracy": record["mean"]} for record in summaries]).encode(
        y=y, color=colour, tooltip=tips(method="", mean=".2f", low=".2f", high=".2f")
    )
    # The interval is a pale band, so that the splits' dots stay visible on it.
    ends = {"x": alt.X("low:Q", title="test accuracy (%)"), "x2": "high:Q"}
    bars = base.mark_rule(strokeWidth=9).encode(**ends, opacity=bright(0.28, 0.06))
    means = base.mark_tick(thickness=3, size=15).encode(x=x, opacity=bright(1.0, 0.12))
    lowest = min(record["accuracy"] for record in splits)
    # Far below every method it would only squeeze them together.
    near = [{"accuracy": majority}] if majority >= lowest - 10 else []
    chance = chart_of(near).mark_rule(strokeDash=[2, 3], color="#555555").encode(x=x)
    return alt.layer(chance, bars, means, points).properties(width=420, height=alt.Step(19)).add_params(one)


def differences(summaries: Sequence[Row], splits: Sequence[Row], reference: str) -> Any:
    """Every method minus a reference on the same splits: a dot for each split, the mean and its interval.

    Parameters
    ----------
    summaries : records with ``method``, ``mean``, ``low``, ``high``, ``p``, in points, best first
    splits : records with ``method``, ``split``, ``difference``
    reference : str
    """
    y, title = _names(summaries), f"points above {reference}"
    x = alt.X("difference:Q", title=title)
    points = (
        chart_of(splits)
        .mark_point(filled=True, size=22, opacity=0.55, color="#555555")
        .encode(x=x, y=y, tooltip=tips(method="", split="d", difference="+.2f"))
    )
    shown = [{**each, "sure": significance(each["p"]), "difference": each["mean"]} for each in summaries]
    base = chart_of(shown).encode(
        y=y, color=by_significance("sure", "#777777", legend=alt.Legend(symbolOpacity=1)),
        tooltip=tips(method="", mean="+.2f", low="+.2f", high="+.2f", p=".2g"),
    )  # fmt: skip
    bars = base.mark_rule(strokeWidth=9, opacity=0.3).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    means = base.mark_tick(thickness=3, size=15, opacity=1).encode(x=x)
    return alt.layer(level(x=x), bars, means, points).properties(
        width=_WIDTH, height=alt.Step(19), title=f"against {reference}"
    )


def _by_method(records: Sequence[Row], draw: Callable[[list[Row]], Any]) -> Any:
    names = dict.fromkeys(record["method"] for record in records)
    return side_by_side(
        [draw([record for record in records if record["method"] == name]).properties(title=name) for name in names]
    )


def chosen(records: Sequence[Row], n: int) -> Any:
    """How often validation chose each k and alpha, one panel for each method.

    Parameters
    ----------
    records : records with ``method``, ``loss``, ``k``, ``alpha``, ``splits``
    n : int
        Training rows: the largest k.
    """
    losses = list(dict.fromkeys(record["loss"] for record in records))
    names = {k: f"{k:g} = n" if k == n else f"{k:g}" for k in sorted({record["k"] for record in records})}
    alphas = [f"{alpha:g}" for alpha in sorted({record["alpha"] for record in records}, reverse=True)]

    def draw(mine: list[Row]) -> Any:
        shown = [{**record, "k": names[record["k"]], "alpha": f"{record['alpha']:g}"} for record in mine]
        places = list(names.values())
        return chart_of(shown).mark_point(filled=True, opacity=0.85).encode(
            x=alt.X("k:N", sort=places, title="k", axis=alt.Axis(labelAngle=0), scale=alt.Scale(domain=places)),
            xOffset=alt.XOffset("loss:N", sort=losses),
            y=alt.Y("alpha:N", sort=alphas, title="alpha", scale=alt.Scale(domain=alphas)),
            size=alt.Size("splits:Q", title="splits", scale=alt.Scale(domainMin=0, range=[0, 320]),
                          legend=alt.Legend(tickCount=3, format="d")),
            color=by_loss(losses), tooltip=tips(method="", loss="", k="", alpha="", splits="d"),
        ).properties(width=250, height=alt.Step(20))  # fmt: skip

    return _by_method(records, draw)


def gain_by_k(records: Sequence[Row]) -> Any:
    """What each split gained over the average loss against the share of the examples that k was.

    Parameters
    ----------
    records : records with ``method``, ``loss``, ``split``, ``share``, ``gain``
    """
    losses = list(dict.fromkeys(record["loss"] for record in records))
    # A little room at both ends: k = n and the smallest k would lie on the frame.
    scale = alt.Scale(type="log", domain=[0.7 * min(record["share"] for record in records), 1.4], nice=False)
    x = alt.X("share:Q", title="chosen k / n", scale=scale, axis=alt.Axis(format="~g", tickCount=4))
    y = alt.Y("gain:Q", title="points above average")
    tooltip = tips(method="", loss="", split="d", share=".3f", gain="+.2f")

    def draw(mine: list[Row]) -> Any:
        points = dots(mine, size=60, opacity=0.7, x=x, y=y, color=by_loss(losses), tooltip=tooltip)
        return alt.layer(level(y=y), points).properties(width=_WIDTH, height=230)

    return _by_method(records, draw)
