"""How many steps and which rate the networks get: settled on generated sets, none of which is in a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_circles, make_classification, make_moons

from closecall.network import train_grid
from closecall.objective import Problem
from closecall.table.splits import shares
from reproduction.protocol.grid import LABELS, choose, k_grid, rows_of
from reproduction.protocol.published import LOSSES

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
    signed,
)

STEPS = (100, 200, 300, 500, 1000, 2000)
RATES = (0.003, 0.01, 0.03, 0.1)
METHODS = ("average", "close_decay")
#: How often the draws are drawn again, to see how firm the choice is.
RESAMPLES = 2000
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
#: Every second alpha of the paper's grid.
ALPHAS = tuple(10.0**exponent for exponent in range(-5, 6, 2))


def _checkerboard(rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.uniform(-1, 1, (800, 5))
    return X, (np.floor(2 * X[:, 0]) + np.floor(2 * X[:, 1])) % 2


def _noisy(rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.normal(size=(500, 10))
    y = X @ rng.normal(size=10) > 0
    return X, y ^ (rng.random(500) < 0.15)


def _ball(rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.normal(size=(800, 10))
    return X, (X**2).sum(axis=1) + rng.normal(size=800) > 9.3


def _outliers(rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.normal(size=(400, 8))
    y = X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=400) > 0
    X[:8, 0] += np.where(y[:8], -20, 20)
    return X, y


def _circles(rng: np.random.Generator) -> tuple[Array, Array]:
    X, y = make_circles(600, noise=0.15, factor=0.6, random_state=int(rng.integers(2**31)))
    return np.hstack([X, rng.normal(size=(600, 4))]), y


def _made(**options: Any) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    return lambda rng: make_classification(random_state=int(rng.integers(2**31)), **options)


#: Name -> generator -> X (samples, features) and y (samples,) of zeros and ones.
SETS: dict[str, Callable[[np.random.Generator], tuple[Array, Array]]] = {
    "moons": lambda rng: make_moons(600, noise=0.3, random_state=int(rng.integers(2**31))),
    "circles, 4 columns of noise": _circles,
    "checkerboard, 3 columns of noise": _checkerboard,
    "linear, 15 % labels flipped": _noisy,
    "ball in 10 dimensions": _ball,
    "2 % far outliers": _outliers,
    "16 clusters in 20 dimensions": _made(
        n_samples=1000, n_features=20, n_informative=8, n_redundant=4, n_clusters_per_class=8, flip_y=0.02
    ),
    "10 % positives": _made(n_samples=1000, n_features=12, n_informative=5, weights=[0.9], flip_y=0.05, class_sep=0.7),
}


def run_one(key: Row) -> Row:
    """Test errors of what validation chooses, for each (loss, method); every split draws a set of its own."""
    number = list(SETS).index(key["set"])
    rng = np.random.default_rng([number, key["split"]])
    X, y = SETS[key["set"]](rng)
    order = rng.permutation(len(y))
    train, validation, _ = shares(len(y))
    parts = np.split(order, [train, train + validation])
    X = (X - X[parts[0]].mean(axis=0)) / X[parts[0]].std(axis=0)
    signs = np.where(y > 0, 1, -1)
    problems = [
        Problem(loss, method, k, alpha)
        for loss in LOSSES
        for method in METHODS
        for k in (k_grid(train) if method != "average" else (train,))
        for alpha in ALPHAS
    ]
    grid = train_grid(
        X[parts[0]], signs[parts[0]], problems, max_iter=key["steps"], learning_rate=key["rate"], seed=key["split"]
    )
    rows = rows_of(problems)
    for name, part in zip(("train", "validation", "test"), parts, strict=True):
        rows[name] = (grid.scores(X[part]) * signs[part] > 0).sum(axis=1)
    chosen = choose(rows, "sound")
    return {f"{row['loss']} {row['method']}": 1 - float(row["test"]) / len(parts[2]) for row in chosen}


def run(settings: Settings) -> None:
    keys = [
        {"set": name, "split": split, "rate": rate, "steps": steps}
        for split in range(settings.splits)
        for steps in STEPS
        for rate in RATES
        for name in settings.sets or SETS
    ]
    resume(settings, "steps", keys, run_one)


def table(settings: Settings) -> list[Row]:
    """One row for each (rate, steps): errors over sets, losses and complete draws, what the rule chooses, and how often
    it would if the draws were drawn again."""
    lines: dict[tuple[str, int], dict[tuple[float, int], Row]] = {}
    for line in lines_of(settings, "steps"):
        lines.setdefault((line["set"], line["split"]), {})[line["rate"], line["steps"]] = line
    whole = [found for found in lines.values() if len(found) == len(STEPS) * len(RATES)]
    ways = [(rate, steps) for rate in RATES for steps in STEPS]
    errors = {  # method -> (settings, draws)
        method: 100
        * np.array([[np.mean([found[way][f"{loss} {method}"] for loss in LOSSES]) for found in whole] for way in ways])
        for method in METHODS
    }
    both = sum(errors.values()) / len(METHODS)
    chosen, best = picked(both), int(both.mean(axis=1).argmin())
    rng = np.random.default_rng(0)
    again = [picked(both[:, rng.integers(len(whole), size=len(whole))]) for _ in range(RESAMPLES)]
    rows = []
    for place, (rate, steps) in enumerate(ways):
        behind, behind_se = mean_error(both[place] - both[best])
        gain, gain_se = mean_error(errors[METHODS[0]][place] - errors[METHODS[1]][place])
        rows.append(
            {
                "rate": rate, "steps": steps, "draws": len(whole), "sets": len({name for name, _ in lines}),
                **{method: float(errors[method][place].mean()) for method in METHODS},
                "both": float(both[place].mean()), "behind": behind, "behind_se": behind_se if behind else 0.0,
                "gain": gain, "gain_se": gain_se, "chosen": int(place == chosen),
                "picked": float(np.mean(np.array(again) == place)),
            }
        )  # fmt: skip
    return rows


def picked(errors: Array) -> int:
    """The rule: the fewest steps within one standard error (paired by draw) of the lowest mean, then the lowest.

    Parameters
    ----------
    errors : array (settings, draws)
        In the order of ``RATES`` x ``STEPS``.

    Examples
    --------
    >>> errors = np.full((24, 3), 9.0)
    >>> errors[5], errors[1], errors[0] = [1, 1, 1], [1, 1, 1.2], [2, 2, 2]
    >>> picked(errors)
    1
    """
    means = errors.mean(axis=1)
    behind = errors - errors[means.argmin()]
    near = behind.mean(axis=1) <= behind.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
    return min(np.flatnonzero(near).tolist(), key=lambda place: (STEPS[place % len(STEPS)], means[place]))


def _chart(found: list[Row]) -> Any:
    import altair as alt

    values = [
        {"steps": row["steps"], "rate": f"{row['rate']:g}", "method": LABELS[method], "error": row[method]}
        for row in found
        for method in METHODS
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("steps:Q", title="steps", scale=alt.Scale(type="log"), axis=alt.Axis(values=list(STEPS))),
            y=alt.Y("error:Q", title="test error (%)", scale=alt.Scale(zero=False)),
            color=alt.Color(
                "rate:N", title="rate", scale=alt.Scale(range=["#0072B2", "#D55E00", "#009E73", "#CC79A7"])
            ),
            strokeDash=alt.StrokeDash("rate:N", title="rate"),
            column=alt.Column("method:N", title=None),
        )
        .properties(width=260, height=220)
    )


#: How many draws there were when the rule was first looked at, and the steps that it chose then.
BEFORE = (59, 1000)


def _shares(found: list[Row]) -> str:
    """How often the rule chooses each number of steps, in words."""
    shares = {steps: sum(row["picked"] for row in found if row["steps"] == steps) for steps in STEPS}
    return ", ".join(f"{steps} steps in {share:.0%}" for steps, share in shares.items() if share >= 0.005)


def page(found: list[Row], figure: Path) -> str:
    save_chart(_chart(found), figure)
    chosen = next(row for row in found if row["chosen"])
    best = min(found, key=lambda row: row["both"])
    lines = [
        [
            f"rate {row['rate']:g}, {row['steps']:.0f} steps{' (chosen)' if row['chosen'] else ''}",
            *(f"{row[method]:.2f}" for method in METHODS), signed(row["behind"], row["behind_se"]),
            signed(row["gain"], row["gain_se"]), f"{row['picked']:.0%}",
        ]
        for row in found
    ]  # fmt: skip
    return "\n".join(
        [
            "# Steps and rate of the networks\n",
            f"**Chosen: rate {chosen['rate']:g} and {chosen['steps']:.0f} steps, {signed(chosen['behind'])} points "
            f"from the lowest (rate {best['rate']:g}, {best['steps']:.0f} steps); networks in tables use it.**\n",
            f"The choice is fragile. With other draws of the same sets (bootstrap, {RESAMPLES} times) the rule "
            f"chooses {_shares(found)}. When {BEFORE[0]} of the draws were finished it chose {BEFORE[1]} steps. "
            f"And {RATES[-1]:g} is the largest rate that was tried; the errors still fall towards it.\n",
            markdown(
                [
                    "setting",
                    *(LABELS[method] for method in METHODS),
                    "above the lowest",
                    "gain of close decay",
                    "chosen again",
                ],
                lines,
            ),
            f"\n![Test error against steps](beyond/{figure.name})\n",
            "## How it was measured\n",
            f"{found[0]['sets']:.0f} generated sets, none of them in a table: {'; '.join(SETS)}. "
            f"{found[0]['draws']:.0f} draws, each divided 50/25/25; alpha (every second power of ten) and k chosen on "
            "the validation part, for each loss; Adam, the rate constant and falling to zero over the last third. "
            "Errors on the test part in %, means over draws and both losses. The rule, stated before the run: of the "
            "settings whose mean error over `average` and close decay together lies within one standard error (paired "
            "by draw) of the lowest, the one with the fewest steps; one setting for every aggregate.\n",
            made_by("steps"),
        ]
    )


EXPERIMENT = Experiment("steps", run, table, page, splits=8)
