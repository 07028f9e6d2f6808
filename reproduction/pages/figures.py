"""The paper's figures in Altair: functions that turn scores or records into charts, and one that shrinks SVG files."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from closecall.report.charts import COLOURS, by_significance, chart_of, significance, tips
from closecall.report.formats import Row
from reproduction.protocol import stats
from reproduction.protocol.grid import LABELS
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.run.scores import PAIR, Scores, title

_LOSS_COLOURS = ("#0072B2", "#E69F00")


def _dots(records: Sequence[Row], size: int, opacity: float, **encodings: Any) -> Any:
    return chart_of(records).mark_point(filled=True, size=size, opacity=opacity).encode(**encodings)


def _dashed_line(records: Sequence[Row], x: Any, y: Any) -> Any:
    return chart_of(records).mark_line(color="#555555", strokeDash=[4, 4], strokeWidth=1).encode(x=x, y=y)


def _method_colour(**options: Any) -> Any:
    scale = alt.Scale(domain=[LABELS[method] for method in METHODS], range=[COLOURS[method] for method in METHODS])
    return alt.Color("method:N", scale=scale, title=None, **options)


def boundaries(points: Sequence[Row], lines: Sequence[Row]) -> Any:
    """Draw Figure 1: the points of each set and the boundary of each aggregate along the vertical axis.

    Points have ``set``, ``x`` (fitted), ``side`` (for display) and ``label``. Lines have ``set``, ``way`` (there is a
    row of panels for each), ``method`` and ``boundary``.
    """
    rows = []
    for way in dict.fromkeys(line["way"] for line in lines):
        panels = []
        for name in dict.fromkeys(point["set"] for point in points):
            mine = [line for line in lines if (line["set"], line["way"]) == (name, way)]
            marks = _points([point for point in points if point["set"] == name])
            panels.append(alt.layer(marks, *_rules(mine)).properties(width=170, height=220, title=f"{name}: {way}"))
        rows.append(alt.hconcat(*panels))
    return alt.vconcat(*rows)


_SHOWN = (-1.05, 1.05)


def _points(points: Sequence[Row]) -> Any:
    return (
        chart_of(points)
        .mark_point(size=12, filled=True, opacity=0.6, strokeWidth=0)
        .encode(
            x=alt.X("side:Q", title="not fitted (spreads the points)", axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("x:Q", title="x, the feature that is fitted", scale=alt.Scale(domain=_SHOWN)),
            shape=alt.Shape("label:N", title="class", scale=alt.Scale(range=["circle", "cross"])),
            fill=alt.Fill("label:N", title="class", scale=alt.Scale(range=["#bbbbbb", "#444444"])),
        )
    )


def _rules(lines: Sequence[Row]) -> list[Any]:
    """Draw a faint line for each boundary, with a strong segment in its own lane, so that no boundary hides another."""
    lane = 2 / len(METHODS)
    records = [
        {
            **line, "method": LABELS[line["method"]], "left": -1 + lane * METHODS.index(line["method"]),
            "right": -1 + lane * (METHODS.index(line["method"]) + 1),
        }
        for line in lines
        if line["boundary"] is not None and _SHOWN[0] <= line["boundary"] <= _SHOWN[1]
    ]  # fmt: skip
    base = chart_of(records).encode(
        y="boundary:Q", color=_method_colour(), tooltip=tips(method="", boundary=".3f", errors="d")
    )
    piece = base.mark_rule(strokeWidth=4).encode(x="left:Q", x2="right:Q")
    return [base.mark_rule(strokeWidth=0.7, opacity=0.5), piece]


def sizes(records: Sequence[Row]) -> Any:
    """Draw Figure 2: the ``rows`` and ``features`` of each ``dataset`` in a ``suite``."""
    decades = alt.Axis(values=[10**exponent for exponent in range(7)], format="~s")
    return _dots(
        records, 40, 0.7, color=alt.Color("suite:N", title=None),
        x=alt.X("rows:Q", scale=alt.Scale(type="log"), title="examples", axis=decades),
        y=alt.Y("features:Q", scale=alt.Scale(type="log"), title="features", axis=decades),
        tooltip=tips(dataset="", rows=",d", features=",d"),
    ).properties(width=360, height=260)  # fmt: skip


def scatter(scores: Scores) -> Any:
    """Draw Figure 3: accuracy of close decay against that of average, with a panel per loss and a point per set."""
    panels = []
    for loss in LOSSES:
        means, p = 100 * scores.test(loss, PAIR).mean(axis=-1), scores.pairs(loss)[PAIR].p
        records = [
            {
                "dataset": title(name), "average": pair[0], "close_decay": pair[1], "gain": pair[1] - pair[0],
                "p": p[i], "significant": significance(p[i]),
            }
            for i, (name, pair) in enumerate(zip(scores.datasets, means, strict=True))
        ]  # fmt: skip
        low, high = float(np.floor(means.min())), min(float(np.ceil(means.max())) + 1, 100.0)
        axis = alt.Scale(domain=[low, high], nice=False, zero=False)
        x = alt.X("average:Q", title="average, test accuracy (%)", scale=axis)
        y = alt.Y("close_decay:Q", title="close decay, test accuracy (%)", scale=axis)
        tooltip = tips(dataset="", average=".2f", close_decay=".2f", gain="+.2f", p=".2g")
        points = _dots(records, 70, 0.8, x=x, y=y, color=by_significance("significant"), tooltip=tooltip)
        diagonal = _dashed_line([{"average": end, "close_decay": end} for end in (low, high)], x, y)
        panels.append((diagonal + points).properties(width=280, height=280, title=loss))
    return alt.hconcat(*panels)


def chosen_k(scores: Scores) -> Any:
    """Draw Figure 4: (a) the k*/n chosen for close decay; (b) the gain over average against k*/n (medians)."""
    records = [
        {"dataset": title(name), "loss": loss, "fraction": fraction, "gain": 100 * gain}
        for loss in LOSSES
        for name, fraction, gain in zip(
            scores.datasets, scores.chosen(loss), scores.pairs(loss)[PAIR].gains, strict=True
        )
    ]
    colour = alt.Color("loss:N", title=None, scale=alt.Scale(domain=list(LOSSES), range=list(_LOSS_COLOURS)))
    panels = [
        chart_of([record for record in records if record["loss"] == loss])
        .mark_bar(opacity=0.8)
        .encode(
            x=alt.X("fraction:Q", bin=alt.Bin(step=0.1, extent=[0, 1]), title=None if place == 0 else "chosen k* / n"),
            y=alt.Y("count():Q", title="data sets", axis=alt.Axis(tickMinStep=1)),
            color=colour,
        )
        .properties(width=260, height=105, title="(a)" if place == 0 else "")
        for place, loss in enumerate(LOSSES)
    ]
    x = alt.X("fraction:Q", title="chosen k* / n (median over splits)", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("gain:Q", title="gain over average (points)")
    tooltip = tips(dataset="", loss="", fraction=".3f", gain="+.2f")
    points = _dots(records, 70, 0.8, x=x, y=y, color=colour, tooltip=tooltip)
    zero = _dashed_line([{"fraction": end, "gain": 0} for end in (0, 1)], x, y)
    return alt.hconcat(alt.vconcat(*panels), alt.layer(zero, points).properties(width=320, height=280, title="(b)"))


def simulations(records: Sequence[Row]) -> Any:
    """Draw Figure 5: accuracy against the number of added examples, with a panel for each contamination and loss.

    Records have ``contamination``, ``level``, ``loss``, ``method``, ``accuracy`` and ``majority``.
    """
    rows = []
    for loss in dict.fromkeys(record["loss"] for record in records):
        panels = []
        for name in dict.fromkeys(record["contamination"] for record in records):
            chosen = [record for record in records if (record["loss"], record["contamination"]) == (loss, name)]
            panels.append(_simulation(chosen).properties(width=290, height=230, title=f"{name}, {loss}"))
        rows.append(alt.hconcat(*panels))
    return alt.vconcat(*rows)


#: The name of the dotted line of Figure 5.
MAJORITY = "larger class"
#: Marks and dashes of the methods, in their order, and of the dotted line.
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "stroke"]
_DASHES = [[1, 0], [7, 2], [1, 0], [4, 3], [1, 0], [2, 3]]


def _simulation(records: Sequence[Row]) -> Any:
    """Draw one panel of Figure 5, with equally spaced levels.

    Colours, dashes and marks distinguish overlapping lines; wider lines are drawn first.
    """
    shown = [{**record, "method": LABELS[record["method"]]} for record in records]
    shown += [
        {"method": MAJORITY, "level": record["level"], "accuracy": record["majority"]}
        for record in records
        if record["method"] == METHODS[0]
    ]
    names = [*(LABELS[method] for method in METHODS), MAJORITY]
    base = chart_of(shown).encode(
        x=alt.X("level:O", title=f"{records[0]['contamination']} added", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("accuracy:Q", title="test accuracy (%)", scale=alt.Scale(zero=False)),
        color=_look(alt.Color, names, [*(COLOURS[method] for method in METHODS), "#777777"]),
        strokeDash=_look(alt.StrokeDash, names, _DASHES),
        tooltip=tips(method="", level="d", accuracy=".2f"),
    )
    width = alt.condition(
        alt.FieldOneOfPredicate(field="method", oneOf=[LABELS["atk"], LABELS["close"]]), alt.value(4), alt.value(1.6)
    )
    marks = base.transform_filter(alt.FieldOneOfPredicate(field="method", oneOf=names[:-1])).mark_point(
        filled=True, size=45, opacity=1
    )
    shape = _look(alt.Shape, names, _SHAPES)
    return base.mark_line().encode(strokeWidth=width) + marks.encode(shape=shape)


def _look(channel: Any, names: Sequence[str], values: Sequence[Any]) -> Any:
    legend = alt.Legend(symbolType="stroke", symbolSize=130, symbolStrokeWidth=2)
    return channel("method:N", title=None, scale=alt.Scale(domain=list(names), range=list(values)), legend=legend)


def critical_difference(scores: Scores, loss: str) -> Any:
    """Draw the average ranks of the five methods; bars join those that do not differ significantly."""
    ranks = stats.average_ranks(scores.test(loss).mean(axis=-1))
    distance = stats.critical_difference(len(METHODS), len(scores.datasets))
    order = np.argsort(ranks, kind="stable")
    # Each method has its own row, so equal ranks do not hide each other; the bars of the groups are below.
    records = [{"method": LABELS[METHODS[i]], "rank": ranks[i], "row": -row} for row, i in enumerate(order)]
    groups = [
        {"rank": min(ranks[list(group)]), "high": max(ranks[list(group)]), "row": -len(METHODS) - 0.5 * place}
        for place, group in enumerate(stats.rank_groups(ranks, distance))
    ]
    y = alt.Y("row:Q", axis=None, scale=alt.Scale(domain=[-len(METHODS) - 0.5 * len(groups), 0.6], zero=False))
    scale = alt.Scale(domain=[1, len(METHODS)], nice=False, zero=False)
    x = alt.X("rank:Q", title="average rank (1 is best)", scale=scale)
    base = chart_of(records).encode(x=x, y=y, color=_method_colour(legend=None))
    marks = base.mark_point(filled=True, size=80, opacity=1).encode(tooltip=tips(method="", rank=".2f"))
    names = base.mark_text(align="left", dx=8, fontSize=11).encode(text="method:N")
    bars = chart_of(groups).mark_rule(strokeWidth=4, color="#777777").encode(x=x, x2="high:Q", y=y)
    heading = f"{loss}: critical difference {distance:.2f} on {len(scores.datasets)} data sets"
    return alt.layer(bars, marks, names).properties(width=360, height=150, title=heading)


def gains(scores: Scores, loss: str) -> Any:
    """Draw the gain of close decay over average on each data set (at most 40), coloured by significance."""
    one = scores.pairs(loss)[PAIR]
    records = [
        {"dataset": title(scores.datasets[i]), "gain": 100 * one.gains[i], "p": one.p[i],
         "significant": significance(one.p[i])}
        for i in np.argsort(-np.abs(one.gains), kind="stable")[:40]
    ]  # fmt: skip
    return (
        chart_of(records)
        .mark_bar()
        .encode(
            x=alt.X("gain:Q", title="close decay minus average, test accuracy (points)"),
            y=alt.Y("dataset:N", sort=alt.SortField("gain", order="descending"), title=None),
            color=by_significance("significant"),
            tooltip=tips(dataset="", gain="+.2f", p=".2g"),
        )
        .properties(width=360, title=loss)
    )


_MARK = re.compile(r'<path transform="translate\(([-\d.]+),([-\d.]+)\)" (d="[^"]*"[^>]*)/>')
_NUMBERS = re.compile(r'(?<= )(?:transform|d|x|y|x1|x2|y1|y2|width|height)="[^"]*"')


def slim(svg: str) -> str:
    """Return an SVG picture with a smaller file size.

    Coordinates are rounded to a tenth of a pixel. Descriptions of individual marks for screen readers are removed,
    because they are never read in an embedded picture.

    Examples
    --------
    >>> slim('<path aria-label="a: 1.234" role="x" d="M1.2345,6" opacity="0.85"/>')
    '<path d="M1.2,6" opacity="0.85"/>'
    """
    svg = re.sub(r' (?:aria-\w+|role|pointer-events|class)="[^"]*"', "", svg)
    svg = _NUMBERS.sub(lambda found: re.sub(r"-?\d+\.\d\d+", lambda n: f"{float(n[0]):.1f}", found[0]), svg)
    # A mark that is drawn many times is defined once and placed by reference.
    often = {mark: f"m{i}" for i, (mark, n) in enumerate(Counter(m[3] for m in _MARK.finditer(svg)).items()) if n > 9}
    svg = _MARK.sub(lambda m: f'<use href="#{often[m[3]]}" x="{m[1]}" y="{m[2]}"/>' if m[3] in often else m[0], svg)
    marks = "".join(f'<path id="{name}" {mark}/>' for mark, name in often.items())
    return re.sub(r"(<svg[^>]*>)", rf"\1<defs>{marks}</defs>", svg, count=1) if often else svg
