"""The population limit of the four sets of Figure 1: what each aggregate does with infinitely many examples.

The population of a set is its mixture of uniform blocks (an outlier is an atom). *Minimiser* is the global minimum of
the population objective over all boundaries and steepnesses, with the paper's constant M for close-k, by quadrature on
a grid. *Descent* is what the solver reaches from least squares on a fine quadrature of the same population. Errors are
then exact: they come from the blocks, not from a sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closecall.data.synthetic import FIGURE1, figure1
from closecall.evaluate.grid import LABELS
from closecall.losses import get_loss
from closecall.objective import Problem
from closecall.solvers import solve

from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    lines_of,
    made_by,
    markdown,
    mean_error,
    resume,
    save_chart,
)

METHODS = ("close", "close_decay", "atk", "top", "average")
FRACTIONS = (0.02, 0.1, 0.5)
#: alpha for each example: 0.01 and 1 at the paper's 500 examples.
PENALTIES = {"weak": 2e-5, "strong": 2e-3}
SIZES = (500, 5_000, 50_000)
DRAWS = 10
STEPS = 1000


def error_of(name: str, slope: float, intercept: float) -> float:
    """Exact population error of the classifier sign(slope x + intercept); a score of zero is wrong on both sides.

    Examples
    --------
    >>> round(error_of("ambiguous", -1.0, 0.0), 6), round(error_of("easy", -1.0, 0.0), 6)
    (0.25, 0.01)
    """
    blocks = FIGURE1[name]
    total, wrong = sum(count for _, count, _, _ in blocks), 0.0
    for label, count, low, high in blocks:
        if slope == 0:
            wrong += count * (label * intercept <= 0)
            continue
        cut = -intercept / slope
        left = float(np.clip((cut - low) / (high - low), 0, 1)) if high > low else float(low < cut)
        side = label * np.sign(slope)  # +1: right of the cut is right
        wrong += count * (left if side > 0 else 1 - left)
    return wrong / total


def best_linear(name: str) -> float:
    """The least error of any boundary: it is piecewise linear in the boundary, so it is at the end of a block."""
    ends = {end for _, _, low, high in FIGURE1[name] for end in (low, high)}
    cuts = [end + shift for end in ends for shift in (-1e-9, 0.0, 1e-9)]
    return min(error_of(name, sign, -sign * cut) for cut in cuts for sign in (1.0, -1.0))


def bayes(name: str) -> float:
    """The least error of any function: where blocks overlap, the rarer label is wrong; an atom can be set apart."""
    blocks = FIGURE1[name]
    ends = sorted({end for _, _, low, high in blocks for end in (low, high)})
    wrong = 0.0
    for left, right in itertools.pairwise(ends):
        masses = dict.fromkeys((-1, 1), 0.0)
        for label, count, low, high in blocks:
            if high > low and low <= left and right <= high:
                masses[label] += count * (right - left) / (high - low)
        wrong += min(masses.values())
    return wrong / sum(count for _, count, _, _ in blocks)


def quadrature(name: str, points: int) -> tuple[Array, Array, Array]:
    """Midpoints x, labels and masses (summing to one) that stand for the population."""
    blocks = FIGURE1[name]
    total = sum(count for _, count, _, _ in blocks)
    x, y, mass = [], [], []
    for label, count, low, high in blocks:
        number = points if high > low else 1
        x.append(low + (high - low) * (np.arange(number) + 0.5) / number)
        y.append(np.full(number, float(label)))
        mass.append(np.full(number, count / total / number))
    return np.concatenate(x), np.concatenate(y), np.concatenate(mass)


def objective(losses: Array, margins: Array, mass: Array, method: str, fraction: float, constant: float) -> Array:
    """Population values (candidates,) of an aggregate, for losses and margins (candidates, points)."""
    if method == "average":
        return losses @ mass
    close = method.startswith("close")
    keys = np.abs(losses - np.log(2)) if close else -losses
    order = np.argsort(keys, axis=1)
    cumulative = np.cumsum(mass[order], axis=1)
    if method == "top":  # the loss at which the mass from the top reaches the fraction
        place = np.argmax(cumulative >= fraction * (1 - 1e-12), axis=1)
        return np.take_along_axis(losses, np.take_along_axis(order, place[:, None], axis=1), axis=1)[:, 0]
    taken = np.clip(fraction - (cumulative - mass[order]), 0, mass[order])
    values = (taken * np.take_along_axis(losses, order, axis=1)).sum(axis=1)
    if close:
        wrong = np.take_along_axis(margins, order, axis=1) <= 0
        values += constant * ((mass[order] - taken) * wrong).sum(axis=1)
    return values


def minimiser(name: str, method: str, fraction: float, penalty: float, points: int = 150) -> tuple[float, float]:
    """Slope and intercept of the global minimum over a grid of boundaries, steepnesses and both directions."""
    x, y, mass = quadrature(name, points)
    cuts = np.linspace(-1.2, 1.2, 481)
    steepness = np.logspace(-1, 2.5, 29)
    logistic = get_loss("logistic")
    constant = float(logistic.value(np.array(-steepness[-1] * 2.2)))
    best = (np.inf, 0.0, 0.0)
    for slope in (*steepness, *-steepness):
        margins = y * slope * (x - cuts[:, None])
        values = objective(logistic.value(margins), margins, mass, method, fraction, constant) + penalty / 2 * slope**2
        place = int(values.argmin())
        if values[place] < best[0]:
            best = float(values[place]), float(slope), float(-slope * cuts[place])
    return best[1], best[2]


def _descent(name: str, x: Array, y: Array, mass: Array, penalty: float) -> dict[str, float]:
    """Exact population error of what the solver finds, for each method and fraction."""
    pairs = [(m, f) for m in METHODS for f in (FRACTIONS if m != "average" else (1.0,))]
    problems = [Problem("logistic", method, fraction, penalty * float(mass.sum())) for method, fraction in pairs]
    found = solve(x[:, None], y, problems, max_iter=STEPS, tol=1e-4, sample_weight=mass)
    return {
        f"{method} {fraction}": error_of(name, float(found.coef[i, 0]), float(found.intercept[i]))
        for i, (method, fraction) in enumerate(pairs)
    }


def run_one(key: Row) -> Row:
    """One (set, penalty, kind): the minimisers, the descent's limit, or one draw of a size."""
    name, penalty = key["set"], PENALTIES[key["penalty"]]
    if key["kind"] == "minimiser":
        pairs = [(m, f) for m in METHODS if m != "close_decay" for f in (FRACTIONS if m != "average" else (1.0,))]
        return {"errors": {f"{m} {f}": error_of(name, *minimiser(name, m, f, penalty)) for m, f in pairs}}
    if key["kind"] == "descent":
        x, y, mass = quadrature(name, 20_000)
        return {"errors": _descent(name, x, y, mass * 1e6, penalty)}
    repeat = key["kind"] // 500
    draws = [figure1(name, np.random.default_rng([key["draw"], i])) for i in range(repeat)]
    x, y = np.concatenate([X[:, 0] for X, _ in draws]), np.concatenate([labels for _, labels in draws])
    return {"errors": _descent(name, x, y, np.ones(len(y)), penalty)}


def run(settings: Settings) -> None:
    names = [name for name in FIGURE1 if not settings.sets or name in settings.sets]
    kinds: list[tuple[Any, int]] = [("minimiser", 0), ("descent", 0)]
    kinds += [(size, draw) for size in SIZES for draw in range(settings.splits)]
    keys = [
        {"set": name, "penalty": penalty, "kind": kind, "draw": draw}
        for kind, draw in kinds
        for penalty in PENALTIES
        for name in names
    ]
    resume(settings, "population", keys, run_one)


def table(settings: Settings) -> list[Row]:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for line in lines_of(settings, "population"):
        for label, value in line["errors"].items():
            method, fraction = label.rsplit(" ", 1)
            groups.setdefault((line["set"], line["penalty"], method, float(fraction), str(line["kind"])), []).append(
                value
            )
    rows = []
    for (name, penalty, method, fraction, kind), values in groups.items():
        mean, error = mean_error(100 * np.array(values))
        rows.append(
            {
                "set": name, "penalty": penalty, "method": method, "k": fraction, "kind": kind, "draws": len(values),
                "error": mean, "se": error,
            }
        )  # fmt: skip
    return rows


def _chart(rows: list[Row]) -> Any:
    import altair as alt

    colours = ["#009E73", "#000000", "#0072B2", "#D55E00", "#CC79A7"]
    names = {"500": 500, "5000": 5000, "50000": 50_000, "descent": 1_000_000}
    shown = [r for r in rows if r["penalty"] == "weak" and str(r["kind"]).removesuffix(".0") in names]
    values = [
        {
            "set": r["set"], "method": LABELS[r["method"]], "n": names[str(r["kind"]).removesuffix(".0")],
            "excess": round(r["error"] - 100 * best_linear(r["set"]), 3),
        }
        for r in shown
        if r["method"] == "average" or r["k"] == 0.1
    ]  # fmt: skip
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("n:Q", scale=alt.Scale(type="log"), title="examples (right end: population)",
                    axis=alt.Axis(values=[500, 5000, 50_000], format="~s", grid=False)),
            y=alt.Y("excess:Q", title="points above best linear", axis=alt.Axis(grid=False, tickCount=4)),
            color=alt.Color("method:N", title=None, scale=alt.Scale(range=colours)),
        )
        .properties(width=170, height=130)
        .facet(facet=alt.Facet("set:N", title=None, sort=list(FIGURE1)), columns=2)
        .resolve_scale(y="independent")
    )  # fmt: skip


def _lines(rows: Sequence[Row], name: str, penalty: str) -> list[list[str]]:
    at = {
        (r["method"], r["k"], str(r["kind"]).removesuffix(".0")): r
        for r in rows
        if (r["set"], r["penalty"]) == (name, penalty)
    }
    lines = []
    for method in METHODS:
        for fraction in FRACTIONS if method != "average" else (1.0,):
            cells = [LABELS[method] + ("" if method == "average" else f", k = {fraction:g} n")]
            for kind in ("minimiser", "descent", *map(str, SIZES)):
                # The decay is a way to the minimum of close, not another objective.
                row = at.get(("close" if (method, kind) == ("close_decay", "minimiser") else method, fraction, kind))
                error = f" ± {row['se']:.2f}" if row and np.isfinite(row["se"]) else ""
                cells.append("-" if row is None else f"{row['error']:.2f}{error}")
            lines.append(cells)
    return lines


def page(rows: list[Row], figure: Path) -> str:
    save_chart(_chart(rows), figure)
    draws = min(row["draws"] for row in rows if str(row["kind"]) not in ("minimiser", "descent"))
    parts = [
        "# The population limit of Figure 1\n",
        "The paper says that average, maximal and average top-k fail on its four sets even with infinitely many "
        "examples. Here the population is taken literally: each block of a set is its uniform distribution. Errors "
        "are in percent and exact (they come from the blocks). *Minimiser* is the global minimum of the population "
        "objective on a grid of boundaries and steepnesses, for close-k with the paper's constant M; *descent* is what "
        f"the solver reaches from least squares on the population, and the last columns what it reaches on {draws:.0f} "
        f"draws of n examples (± one standard error). Logistic loss; alpha is {PENALTIES['weak']:g} n (weak: 0.01 at "
        f"the paper's 500 examples) or {PENALTIES['strong']:g} n (strong: 1).\n",
        f"![Excess error against n, k = 0.1 n, weak penalty](beyond/{figure.name})\n",
    ]
    header = ["method", "minimiser", "descent, population", *(f"n = {size:,}" for size in SIZES)]
    for name in FIGURE1:
        parts.append(f"## {name}\n")
        parts.append(f"Best linear error {100 * best_linear(name):.2f} %, Bayes error {100 * bayes(name):.2f} %.\n")
        for penalty in PENALTIES:
            parts.append(f"**{penalty} penalty**\n\n{markdown(header, _lines(rows, name, penalty))}\n")
    return "\n".join([*parts, made_by("population")])


EXPERIMENT = Experiment("population", "The population limit of Figure 1", run, table, page, splits=DRAWS)
