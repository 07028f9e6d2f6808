"""How strong a guard should be: the largest mean gain counts, but at most one set in a hundred may be a point worse.

Gains are measured for the search and the referee on generated tables, clean and contaminated, and on half of the PMLB
sets (those with names whose SHA-256 hash begins with an even byte). These splits are not used anywhere else. The pages
on the value of the guards use the other half. The table also shows how often a guard accepts pure noise, in the worst
case of the level study.
"""

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from closecall import CloseKClassifierCV
from closecall.paired import GUARD
from reproduction.run.scores import title

from . import referee
from .common import FEWEST_ROWS, Experiment, Row, Settings, lines_of, markdown, pmlb_sets, resume, signed
from .level import CASES, COMPARED, WEAKEST, Case, Runs, left, passed, runs_of
from .referee import BASE, TROUBLES, of_members, table_of

#: All are evaluated with the same fits.
GUARDS = (0.25, 0.5, 0.75, 1.0, 1.28, 1.5, 1.75, 2.0, 2.5)
#: The first split of the PMLB sets; the pages use smaller numbers.
FIRST = 100
GENERATED = 480
#: The largest permitted shares of sets that lose a point and of noise that passes.
WORSE, PASSES = 0.01, 0.06
#: Mean gains that differ by at most this many points count as equal; the strongest of these guards is chosen.
SAME = 0.05
WHO = {"search": "CloseKClassifierCV", "referee": "GuardedClassifierCV"}
#: The cases of the level study on which a guard is chosen.
DECIDES: dict[str, Callable[[Case], bool]] = {
    "search": lambda case: case.decides == "close-k",
    "referee": lambda case: case.decides not in ("close-k", "threshold") and "scoring" not in case.rows,
}


def even(name: str) -> bool:
    """Return whether a set is in the half used to choose the guard.

    Examples
    --------
    >>> even("monk1"), even("monk3")
    (True, False)
    """
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def run_search(key: Row) -> Row:
    """Return the gain of the search's best challenger over the baseline on test rows, and the guard's comparison."""
    X, y, unseen, truth = table_of(key)
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for guard in (1000.0, WEAKEST):  # the baseline, and the best challenger if it gains anything
            model = CloseKClassifierCV(guard=guard).fit(X, y)
            values.append(100 * float(np.mean(model.predict(unseen) == truth)))
    step = model.guard_report_["comparisons"][-1]
    return {"gain": values[1] - values[0], "step": [step[name] for name in COMPARED]}


def keys(settings: Settings) -> list[Row]:
    names = [name for name in pmlb_sets(settings.max_values, None, FEWEST_ROWS) if even(title(name))]
    found: list[Row] = [{"generated": seed} for seed in range(GENERATED)]
    return found + [{"name": name, "split": FIRST + split} for split in range(settings.splits) for name in names]


def run(settings: Settings) -> None:
    for who in settings.sets or WHO:
        if who == "search":
            resume(settings, "strength-search", keys(settings), run_search)
        else:
            resume(settings, "strength-referee", of_members(keys(settings)), referee.run_one)


def gains_of(settings: Settings, who: str) -> list[Row]:
    """Return the key of every table, the challenger's gain on test rows, and the guard's comparison."""
    if who == "search":
        lines = lines_of(settings, "strength-search")
        return [line | {"won": line["gain"]} for line in lines]
    found = referee.tables_of(settings, "strength-referee")
    accuracy = [{name: 100 * line["accuracy"] for name, line in row["of"].items()} for row in found]
    return [row | {"won": at[row["challenger"]] - at[BASE]} for row, at in zip(found, accuracy, strict=True)]


def table(settings: Settings) -> list[Row]:
    """Return a row for each guard of the search and of the referee; ``chosen`` marks those that the rule chooses."""
    drawn, found = runs_of(settings), list[Row]()
    for who in WHO:
        mine = gains_of(settings, who)
        noise = [runs for case, runs in drawn.items() if DECIDES[who](CASES[case])]
        rows = [_row(who, guard, mine, noise) for guard in GUARDS] if mine else []
        fit = [row for row in rows if row["worse"] <= WORSE and row["noise"] <= PASSES]
        best = max((row["mean"] for row in fit), default=0.0)
        chosen = max((row["guard"] for row in fit if row["mean"] > best - SAME), default=None)
        found += [row | {"chosen": int(row["guard"] == chosen)} for row in rows]
    return found


def _row(who: str, guard: float, lines: list[Row], noise: list[Runs]) -> Row:
    by_set: dict[str, list[float]] = {}
    won = [line["won"] * left(line["step"], guard) for line in lines]
    for line, each in zip(lines, won, strict=True):
        by_set.setdefault(title(line["name"]) if "name" in line else f"generated {line['generated']}", []).append(each)
    gains = np.array([np.mean(each) for each in by_set.values()])
    real = np.array([not name.startswith("generated") for name in by_set])
    dirty = [each for line, each in zip(lines, won, strict=True) if line.get("generated", 0) % len(TROUBLES)]
    return {
        "who": who, "guard": guard, "sets": len(gains), "tables": len(lines), "cases": len(noise),
        "runs": min((len(runs) for runs in noise), default=0), "mean": float(gains.mean()),
        "real": float(gains[real].mean()) if real.any() else float("nan"),
        "dirty": float(np.mean(dirty)) if dirty else float("nan"),
        "better": float((gains >= 1).mean()), "worse": float((gains <= -1).mean()),
        "noise": max((float(np.mean(passed(runs, guard))) for runs in noise), default=float("nan")),
    }  # fmt: skip


def page(rows: list[Row], figure: Path) -> Row:
    lines = [
        [f"`{WHO[row['who']]}`", f"{row['guard']:g}" + (" (chosen)" if row["chosen"] else ""), signed(row["mean"]),
         signed(row["real"]), signed(row["dirty"]), f"{row['better']:.0%}", f"{row['worse']:.1%}",
         f"{row['noise']:.1%}"]
        for row in rows
    ]  # fmt: skip
    chosen = " and ".join(f"{row['guard']:g} for `{WHO[row['who']]}`" for row in rows if row["chosen"])
    studied = "; ".join(
        f"{row['sets']:.0f} sets for {WHO[row['who']]} ({row['tables']:.0f} tables over all splits) and "
        f"{row['cases']:.0f} noise settings with at least {row['runs']:.0f} runs each"
        for row in rows if row["chosen"]
    )  # fmt: skip
    header = [
        "who decides", "guard", "mean gain (points)", "on PMLB sets", "on dirty tables", "a point better",
        "a point worse", "noise that passes",
    ]  # fmt: skip
    return {
        "chosen": chosen, "same": SAME, "worse": WORSE, "passes": PASSES, "guard": GUARD, "generated": GENERATED,
        "table": markdown(header, lines), "studied": studied,
    }  # fmt: skip


EXPERIMENT = Experiment("strength", run, table, page, splits=2)
