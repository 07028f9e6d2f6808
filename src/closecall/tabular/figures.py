"""Charts of one table's comparison: every method split by split, with intervals; everything is offline.

Each function takes flat records and returns a chart, as in :mod:`closecall.paper.figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from closecall.report.charts import COLOURS, Record, plain_data, tips

#: What kind of method it is -> its colour; the same hues as in the other figures.
FAMILIES = {
    "close-k": COLOURS["close_decay"],
    "average": COLOURS["average"],
    "other aggregates": COLOURS["close"],
    "scikit-learn": COLOURS["atk"],
    "tree": COLOURS["top"],
}
LOSS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
_WIDTH = 330


def _names(field: str, order: Sequence[str]) -> Any:
    return alt.Y(f"{field}:N", sort=list(order), title=None, axis=alt.Axis(labelLimit=205))


def _zero(x: Any, **options: Any) -> Any:
    return (
        alt.Chart(plain_data([{"difference": 0}])).mark_rule(color="#555555", strokeDash=[4, 4], **options).encode(x=x)
    )


def ranking(summaries: Sequence[Record], splits: Sequence[Record], majority: float) -> Any:
    """Accuracy of every method: a dot for each split, the mean and its interval; dotted the largest class, if near.

    Parameters
    ----------
    summaries : records with ``method``, ``family``, ``mean``, ``low``, ``high``, best first
    splits : records with ``method``, ``family``, ``split``, ``accuracy``, ``k``, ``alpha``
    majority : float
        Accuracy in percent of always saying the largest class.
    """
    order = [record["method"] for record in summaries]
    present = [family for family in FAMILIES if family in {record["family"] for record in summaries}]
    one = alt.selection_point(fields=["family"], bind="legend", name="family")
    colour = alt.Color(
        "family:N",
        title=None,
        scale=alt.Scale(domain=present, range=[FAMILIES[family] for family in present]),
        legend=alt.Legend(symbolOpacity=1),
    )
    y = _names("method", order)
    x = alt.X("accuracy:Q", title="test accuracy (%)", scale=alt.Scale(zero=False))
    dots = (
        alt.Chart(plain_data(splits))
        .mark_point(filled=True, size=26)
        .encode(
            x=x, y=y, color=colour, opacity=alt.condition(one, alt.value(0.6), alt.value(0.06)),
            tooltip=tips(method="", split="d", accuracy=".2f", k="", alpha=""),
        )
    )  # fmt: skip
    base = alt.Chart(plain_data([{**record, "accuracy": record["mean"]} for record in summaries])).encode(
        y=y, color=colour, tooltip=tips(method="", mean=".2f", low=".2f", high=".2f")
    )
    # The interval is a pale band, so that the splits' dots stay visible on it.
    bars = base.mark_rule(strokeWidth=9).encode(
        x=alt.X("low:Q", title="test accuracy (%)"),
        x2="high:Q",
        opacity=alt.condition(one, alt.value(0.28), alt.value(0.06)),
    )
    means = base.mark_tick(thickness=3, size=15).encode(
        x=x, opacity=alt.condition(one, alt.value(1.0), alt.value(0.12))
    )
    lowest = min(record["accuracy"] for record in splits)
    # Far below every method it would only squeeze them together.
    near = [{"accuracy": majority}] if majority >= lowest - 10 else []
    chance = alt.Chart(plain_data(near)).mark_rule(strokeDash=[2, 3], color="#555555").encode(x=x)
    return alt.layer(chance, bars, means, dots).properties(width=420, height=alt.Step(19)).add_params(one)


def differences(summaries: Sequence[Record], splits: Sequence[Record], reference: str) -> Any:
    """Every method minus a reference on the same splits: a dot for each split, the mean and its interval.

    Parameters
    ----------
    summaries : records with ``method``, ``mean``, ``low``, ``high``, ``p``, in points, best first
    splits : records with ``method``, ``split``, ``difference``
    reference : str
    """
    order = [record["method"] for record in summaries]
    y, title = _names("method", order), f"points above {reference}"
    scale = alt.Scale(domain=["p < 0.05", "p >= 0.05"], range=[COLOURS["close_decay"], "#777777"])
    shown = [{**each, "sure": "p < 0.05" if each["p"] < 0.05 else "p >= 0.05"} for each in summaries]
    x = alt.X("difference:Q", title=title)
    dots = (
        alt.Chart(plain_data(splits))
        .mark_point(filled=True, size=22, opacity=0.55, color="#555555")
        .encode(x=x, y=y, tooltip=tips(method="", split="d", difference="+.2f"))
    )
    base = alt.Chart(plain_data([{**each, "difference": each["mean"]} for each in shown])).encode(
        y=y, color=alt.Color("sure:N", title=None, scale=scale, legend=alt.Legend(symbolOpacity=1)),
        tooltip=tips(method="", mean="+.2f", low="+.2f", high="+.2f", p=".2g"),
    )  # fmt: skip
    bars = base.mark_rule(strokeWidth=9, opacity=0.3).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    means = base.mark_tick(thickness=3, size=15, opacity=1).encode(x=x)
    return alt.layer(_zero(x), bars, means, dots).properties(
        width=_WIDTH, height=alt.Step(19), title=f"against {reference}"
    )


def chosen(records: Sequence[Record], n: int) -> Any:
    """How often validation chose each k and alpha, one panel for each method.

    Parameters
    ----------
    records : records with ``method``, ``loss``, ``k``, ``alpha``, ``splits``
    n : int
        Training rows: the largest k.
    """
    ks = sorted({record["k"] for record in records})
    alphas = sorted({record["alpha"] for record in records}, reverse=True)
    losses = list(dict.fromkeys(record["loss"] for record in records))
    names = {k: f"{k:g} = n" if k == n else f"{k:g}" for k in ks}
    panels = []
    for method in dict.fromkeys(record["method"] for record in records):
        mine = [{**r, "k": names[r["k"]], "alpha": f"{r['alpha']:g}"} for r in records if r["method"] == method]
        panels.append(
            alt.Chart(plain_data(mine))
            .mark_point(filled=True, opacity=0.85)
            .encode(
                x=alt.X("k:N", sort=list(names.values()), title="k", axis=alt.Axis(labelAngle=0),
                        scale=alt.Scale(domain=list(names.values()))),
                xOffset=alt.XOffset("loss:N", sort=losses),
                y=alt.Y("alpha:N", sort=[f"{a:g}" for a in alphas], title="alpha",
                        scale=alt.Scale(domain=[f"{a:g}" for a in alphas])),
                size=alt.Size("splits:Q", title="splits", scale=alt.Scale(domainMin=0, range=[0, 320]),
                              legend=alt.Legend(tickCount=3, format="d")),
                color=_by_loss(losses),
                tooltip=tips(method="", loss="", k="", alpha="", splits="d"),
            )
            .properties(width=250, height=alt.Step(20), title=method)
        )  # fmt: skip
    return alt.hconcat(*panels)


def gain_by_k(records: Sequence[Record]) -> Any:
    """What each split gained over the average loss against the share of the examples that k was.

    Parameters
    ----------
    records : records with ``method``, ``loss``, ``split``, ``share``, ``gain``
    """
    losses = list(dict.fromkeys(record["loss"] for record in records))
    # A little room at both ends: k = n and the smallest k would lie on the frame.
    ends = [0.7 * min(record["share"] for record in records), 1.4]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    x = alt.X("share:Q", title="chosen k / n", scale=scale, axis=alt.Axis(format="~g", tickCount=4))
    y = alt.Y("gain:Q", title="points above average")
    panels = []
    for method in dict.fromkeys(record["method"] for record in records):
        mine = [record for record in records if record["method"] == method]
        dots = (
            alt.Chart(plain_data(mine))
            .mark_point(filled=True, size=60, opacity=0.7)
            .encode(x=x, y=y, color=_by_loss(losses),
                    tooltip=tips(method="", loss="", split="d", share=".3f", gain="+.2f"))
        )  # fmt: skip
        level = alt.Chart(plain_data([{"gain": 0}])).mark_rule(color="#555555", strokeDash=[4, 4]).encode(y=y)
        panels.append(alt.layer(level, dots).properties(width=_WIDTH, height=230, title=method))
    return alt.hconcat(*panels)


def _by_loss(losses: Sequence[str]) -> Any:
    scale = alt.Scale(domain=list(losses), range=list(LOSS_COLOURS[: len(losses)]))
    return alt.Color("loss:N", title=None, scale=scale)
