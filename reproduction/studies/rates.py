"""Networks of Table 1 with other rates and steps than the tables': does that make its fractions the paper's?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from closecall.network import train_grid
from closecall.stats import SIGNIFICANCE, fraction_interval
from reproduction.pages.agreement import proportions_test
from reproduction.protocol.grid import LABELS, choose, grid, rows_of
from reproduction.protocol.pairs import compare
from reproduction.protocol.plan import NETWORK_RATES, NETWORK_STEPS, Cell, rng_for
from reproduction.protocol.protocol import get_protocol
from reproduction.protocol.published import LOSSES, METHODS as PUBLISHED, get_table
from reproduction.protocol.splits import PARTS
from reproduction.run.cell import divide

from .common import Experiment, Row, Settings, at_hand, dataset, lines_of, made_by, markdown, mean_error, resume, signed

TABLE = get_table("table1")
CHOSEN = NETWORK_RATES[max(NETWORK_RATES)], NETWORK_STEPS
#: (rate, steps), the tables' own first.
WAYS: tuple[tuple[float, int], ...] = (CHOSEN, (0.03, 200), (0.01, 200), (0.003, 200), (0.1, 1000), (0.01, 1000))
METHODS = ("average", "top", "close_decay")
#: The largest rows x columns of a data set.
MAX_VALUES = 5_000
#: (base, better), as the columns of the page.
PAIRS = (
    ("top", "average"),
    ("top", "close_decay"),
    ("average", "top"),
    ("average", "close_decay"),
    ("close_decay", "average"),
)


def run_one(key: Row) -> Row:
    """Test accuracies of what validation chooses; start, division and grid are those of the tables' cell."""
    data = dataset(key["name"])
    cell = Cell("beyond", key["name"], data.checksum, key["split"], "network", "paper")
    parts = divide(data, cell)
    problems = grid(parts.sizes[0], METHODS, LOSSES)
    trained = train_grid(
        parts.X[0],
        parts.y[0],
        problems,
        max_iter=key["steps"],
        seed=int(rng_for(cell, "start").integers(2**31)),
        learning_rate=key["rate"],
        penalize_intercept=get_protocol(cell.protocol).penalize_intercept,
    )
    rows = rows_of(problems)
    for part, X, y in zip(PARTS, parts.X, parts.y, strict=True):
        rows[part] = (trained.scores(X) * y > 0).sum(axis=1)
    chosen = choose(rows, cell.protocol)
    return {f"{row['loss']} {row['method']}": float(row["test"]) / parts.sizes[2] for row in chosen}


def run(settings: Settings) -> None:
    names = at_hand(["pmlb94"], min(MAX_VALUES, settings.max_values), settings.sets)
    keys = [
        {"name": name, "split": split, "rate": rate, "steps": steps}
        for rate, steps in WAYS
        for name in names
        for split in range(settings.splits)
    ]
    resume(settings, "rates", keys, run_one)


def table(settings: Settings) -> list[Row]:
    """One row for each (rate, steps, loss, pair), over the sets that have all splits in every way."""
    found: dict[str, dict[tuple[float, int], dict[int, Row]]] = {}
    for line in lines_of(settings, "rates"):
        found.setdefault(line["name"], {}).setdefault((line["rate"], line["steps"]), {})[line["split"]] = line
    whole = [ways for ways in found.values() if all(len(ways.get(way, ())) >= settings.splits for way in WAYS)]
    accuracies = {  # (way, loss) -> (sets, methods, splits)
        (way, loss): np.array(
            [
                [[ways[way][split][f"{loss} {method}"] for split in range(settings.splits)] for method in METHODS]
                for ways in whole
            ]
        )
        for way in WAYS
        for loss in LOSSES
    }
    rows = []
    for (way, loss), scores in accuracies.items() if whole else ():
        pairs, published = compare(scores, METHODS, "paper"), TABLE.fractions("network", loss)
        errors, tables = 100 - 100 * scores.mean(axis=-1), 100 - 100 * accuracies[CHOSEN, loss].mean(axis=-1)
        for base, better in PAIRS:
            pair, place = pairs[base, better], METHODS.index(better)
            wins, sets = int(pair.wins("significant").sum()), len(whole)
            (gain, gain_se), (low, high) = mean_error(100 * pair.gains), fraction_interval(wins, sets)
            change, change_se = mean_error(errors[:, place] - tables[:, place])
            theirs = float(published[PUBLISHED.index(base), PUBLISHED.index(better)])
            rows.append(
                {
                    "rate": way[0], "steps": way[1], "loss": loss, "base": base, "better": better, "sets": sets,
                    "splits": settings.splits, "wins": wins, "low": low, "high": high, "gain": gain,
                    "gain_se": gain_se, "error": float(errors[:, place].mean()), "change": change,
                    "change_se": change_se, "published": theirs,
                    "p": proportions_test(wins, sets, theirs, TABLE.denominators["network"][0])[2],
                }
            )  # fmt: skip
    return rows


def page(rows: list[Row], figure: Path) -> str:
    del figure
    at = {(row["loss"], (row["rate"], row["steps"]), row["base"], row["better"]): row for row in rows}
    parts = [
        "# The networks of Table 1 with other rates\n",
        *_words(rows, at),
    ]
    for loss in LOSSES:
        lines = [
            [
                f"rate {way[0]:g}, {way[1]} steps{' (tables)' if way == CHOSEN else ''}",
                *(f"{at[loss, way, *_over(method)]['error']:.2f}" for method in METHODS),
                *(_fraction(at[loss, way, *pair]) for pair in PAIRS),
                signed(*(at[loss, way, "average", "close_decay"][name] for name in ("gain", "gain_se"))),
            ]
            for way in WAYS
        ]
        lines.append(
            ["published", *[""] * len(METHODS), *(f"{at[loss, CHOSEN, *pair]['published']:.2f}" for pair in PAIRS), ""]
        )
        header = [
            "setting", *(f"error of {LABELS[method]} (%)" for method in METHODS),
            *(f"{LABELS[better]} over {LABELS[base]}" for base, better in PAIRS), "gain of close decay (points)",
        ]  # fmt: skip
        parts += [f"## {loss.capitalize()} loss\n", markdown(header, lines), ""]
    return "\n".join(
        [
            *parts,
            "## How it was measured\n",
            "The paper's text does not say with which rate and for how many steps its networks were trained; its "
            "released code does ([its descent](beyond-network-starts.md)). Ours are [chosen on generated "
            f"sets](beyond-steps.md). Here {rows[0]['sets']:.0f} PMLB sets (at most {MAX_VALUES:,} values), "
            f"{rows[0]['splits']:.0f} splits, the paper's protocol and test; division, start and grid of every cell "
            "are the tables' own. Fractions of sets on which one method is significantly better than the other, with "
            f"exact 95 % intervals; the published ones are of {TABLE.denominators['network'][0]} sets. In bold: "
            "differs from the published one (p < 0.05, as in [the comparison](comparison.md), not corrected for "
            "how many are tested).\n",
            made_by("rates"),
        ]
    )


def _words(rows: list[Row], at: dict[Any, Row]) -> list[str]:
    sets = rows[0]["sets"]
    helps, hurts = ([row for row in rows if (row["base"], row["better"]) == pair] for pair in (PAIRS[-2], PAIRS[-1]))
    gains = [row["gain"] for row in helps]
    # The way in which top is beaten least, both losses together.
    best = min(WAYS, key=lambda way: sum(at[loss, way, *PAIRS[0]]["wins"] for loss in LOSSES))
    tables, there, theirs = (
        " and ".join(f"{value(loss):.2f}" for loss in LOSSES)
        for value in (
            lambda loss: at[loss, CHOSEN, *PAIRS[0]]["wins"] / sets,
            lambda loss: at[loss, best, *PAIRS[0]]["wins"] / sets,
            lambda loss: at[loss, CHOSEN, *PAIRS[0]]["published"],
        )
    )
    return [
        f"**Close decay is better than average on {_range(row['wins'] for row in helps)} of {sets:.0f} sets and worse "
        f"on {_range(row['wins'] for row in hurts)}, whatever the setting and loss; its mean gains are "
        f"{min(gains):+.2f} to {max(gains):+.2f} points.**\n",
        f"`top`: average beats it on {tables} of the sets (logistic and hinge) as in the tables, on {there} with "
        f"rate {best[0]:g} and {best[1]} steps, the best of these settings for it; published {theirs}. Its "
        f"error changes by {_changes(at, best, 'top')} points from the one to the other, that of average by "
        f"{_changes(at, best, 'average')}.\n",
    ]


def _changes(at: dict[Any, Row], way: tuple[float, int], method: str) -> str:
    found = [at[loss, way, *_over(method)] for loss in LOSSES]
    return " and ".join(signed(row["change"], row["change_se"]) for row in found)


def _range(values: Iterable[float]) -> str:
    least, *_, most = sorted(values)
    return f"{least:.0f}" if least == most else f"{least:.0f} to {most:.0f}"


def _over(method: str) -> tuple[str, str]:
    """A pair of the table in which the method is the better one."""
    return next(pair for pair in PAIRS if pair[1] == method)


def _fraction(row: Row) -> str:
    text = f"{row['wins'] / row['sets']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    return f"**{text}**" if row["p"] < SIGNIFICANCE else text


EXPERIMENT = Experiment("rates", run, table, page, splits=25)
