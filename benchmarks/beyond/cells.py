"""The cells of Table 3 that differ from ours on the released splits too: one choice changed at a time, on those splits.

Only the (data set, loss, method) in question are solved, so that many choices cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from closecall.evaluate.grid import PARTS, choose
from closecall.objective import Problem, aggregate_value
from closecall.paper.cell import Division, grid
from closecall.paper.published import table3_error
from closecall.paper.scores import LABELS, title

from .choices import STEPS, choose_small, random_start, released_division, scored, solutions, wide_grid
from .common import Array, Row, Settings, markdown, mean_error, read_lines, resume, signed
from .descent import Traits, descend

#: Data set -> its loss and the methods whose published error is more than two standard errors from ours, and on phoneme
#: and madelon average beside them: its minimum does not depend on the start.
CELLS = {
    "pmlb:titanic": ("logistic", ("close_decay",)),
    "fan8:splice3175": ("logistic", ("top",)),
    "pmlb:phoneme": ("hinge", ("close", "atk", "average", "top")),
    "pmlb:spambase": ("logistic", ("top",)),
    "openml100:9976": ("logistic", ("close_decay", "average", "top")),
}
BASE = "our solver"
THEIRS = "released descent"
WIDE = "released descent, wider grid"
LONG = 10_000
BEST = "best on test"
THEIR_BEST = "its descent, best on test"
#: An objective counts as lower if it is so by more than this share.
LOWER = 1e-3

#: Choice -> what it changes.
CHOICES = {
    BASE: "as the benchmark does, on the released splits",
    "ties to larger k": "equals on validation go to the larger k, then the larger alpha",
    "ties to smaller alpha": "equals on validation go to the smaller alpha, then the smaller k",
    "wider grid": "our solver with alpha = 0 and k = 1 as well",
    "every step": "our solver, no row stops before the last step",
    "150 steps": "our solver with 150 steps",
    "3,000 steps": "our solver with 3,000 steps",
    "free intercept": "our solver, intercept not penalised",
    "start at zero": "our solver from w = b = 0",
    "random start": "our solver from a standard normal draw",
    THEIRS: f"its descent, {STEPS:,} steps, the paper's grid",
    WIDE: f"its descent, {STEPS:,} steps, its grid (alpha = 0 and k = 1 as well)",
    "its descent from zero": "from w = b = 0",
    "its descent, no early stop": "every step is taken",
    "its descent, ties shared": "examples tied at the k-th place of close-k share it instead of all counting",
    "its descent, penalty watched": "the value that must not rise has the penalty in it",
    "its descent, 10,000 steps": "as many steps as released: all as released",
    BEST: "our solver, k and alpha picked by the test part itself: no rule of choice can go below",
    f"{BEST}, finer k": "the same with every tenth of n among the k",
    THEIR_BEST: "its descent with its grid, k and alpha picked by the test part itself",
    "no step": "the least-squares start itself, which no loss, k or alpha bears on",
}

#: A choice's classifiers: problems, coefficients, intercepts.
Found = tuple[Sequence[Problem], Array, Array]


def of_cells(problems: Sequence[Problem], name: str) -> list[Problem]:
    """Those of the data set's loss and methods.

    Examples
    --------
    >>> len(of_cells(grid(277), "pmlb:titanic"))
    33
    """
    loss, methods = CELLS[name]
    return [problem for problem in problems if problem.loss == loss and problem.aggregate in methods]


def objectives(problems: Sequence[Problem], coef: Array, intercept: Array, parts: Division) -> Array:
    """Training objectives (problems,), the penalty on the intercept too."""
    margins = (parts.X[0] @ coef.T + intercept) * parts.y[0][:, None]
    penalty = (coef**2).sum(axis=1) + intercept**2
    values = [aggregate_value(problem, margins[:, i]) for i, problem in enumerate(problems)]
    return np.array(values) + 0.5 * np.array([problem.alpha for problem in problems]) * penalty


def _ours(parts: Division, problems: Sequence[Problem], **options: Any) -> Found:
    return problems, *solutions(parts, problems, **options)


def _theirs(parts: Division, problems: Sequence[Problem], steps: int = STEPS, **options: Any) -> Found:
    return problems, *descend(parts.X[0], parts.y[0], problems, steps=steps, **options)


def _narrow(found: Found) -> Found:
    kept = [i for i, p in enumerate(found[0]) if p.alpha > 0 and (p.k or 0) > 1]
    return [found[0][i] for i in kept], found[1][kept], found[2][kept]


def _grids(name: str, parts: Division) -> tuple[list[Problem], list[Problem]]:
    return of_cells(grid(parts.sizes[0]), name), of_cells(wide_grid(parts.sizes[0]), name)


def _base_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    return {BASE: _ours(parts, _grids(name, parts)[0])}


def _main_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    narrow, wide = _grids(name, parts)
    theirs = _theirs(parts, wide)
    return {
        BASE: _ours(parts, narrow),
        "wider grid": _ours(parts, wide),
        THEIRS: _narrow(theirs),
        WIDE: theirs,
    }


def _solver_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    narrow, _ = _grids(name, parts)
    return {
        "every step": _ours(parts, narrow, tol=0.0),
        "150 steps": _ours(parts, narrow, max_iter=150),
        "3,000 steps": _ours(parts, narrow, max_iter=3000),
        "free intercept": _ours(parts, narrow, penalize_intercept=False),
        "start at zero": _ours(parts, narrow, init="zeros"),
        "random start": _ours(parts, narrow, init=random_start(name, split, parts.X[0].shape[1])),
    }


def _traits_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    _, wide = _grids(name, parts)
    return {
        "its descent from zero": _theirs(parts, wide, start=np.zeros(parts.X[0].shape[1] + 1)),
        "its descent, no early stop": _theirs(parts, wide, traits=Traits(early_stop=False)),
        "its descent, penalty watched": _theirs(parts, wide, traits=Traits(watch_penalty=True)),
    }


def _ties_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    return {"its descent, ties shared": _theirs(parts, _grids(name, parts)[1], traits=Traits(share_ties=True))}


def _long_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    wide = _grids(name, parts)[1]
    if name == "openml100:9976":  # 500 features: only what cannot depend on the start
        wide = [problem for problem in wide if problem.aggregate == "average"]
    return {"its descent, 10,000 steps": _theirs(parts, wide, LONG)}


def _best_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    """To be picked by the test part: what no rule of choice can go below on these splits."""
    narrow, wide = _grids(name, parts)
    n, alphas = parts.sizes[0], sorted({problem.alpha for problem in narrow})
    ks = sorted({*(problem.k for problem in narrow), *(round(tenth * n / 10) for tenth in range(1, 11))})
    loss, methods = CELLS[name]
    finer = [Problem(loss, m, k, a) for m in methods for k in (ks if m != "average" else [n]) for a in alphas]
    problems, coef, intercept = _ours(parts, finer)
    kept = [i for i, problem in enumerate(problems) if problem in narrow]
    return {
        BEST: ([problems[i] for i in kept], coef[kept], intercept[kept]),
        f"{BEST}, finer k": (problems, coef, intercept),
        THEIR_BEST: _theirs(parts, wide),
    }


def _start_group(name: str, split: int, parts: Division) -> dict[str, Found]:
    loss, methods = CELLS[name]
    start = np.tile(_start(parts), (len(methods), 1))
    problems = [Problem(loss, method, parts.sizes[0], 0.0) for method in methods]
    return {"no step": (problems, start[:, :-1], start[:, -1])}


#: In the order in which they run.
GROUPS: dict[str, Callable[[str, int, Division], dict[str, Found]]] = {
    "start": _start_group,
    "base": _base_group,
    "main": _main_group,
    "ties": _ties_group,
    "best": _best_group,
    "long": _long_group,
    "solver": _solver_group,
    "traits": _traits_group,
}
#: How many of the splits a group takes at most: those that repeat the whole solve many times take few. Only close-k on
#: rows that occur many times has ties to share.
MOST = {"start": 25, "base": 25, "main": 25, "ties": 25, "best": 25, "long": 10, "solver": 10, "traits": 5}
FEWER = {(name, group): 0 for name in ("pmlb:spambase", "openml100:9976") for group in ("solver", "traits")} | {
    ("openml100:9976", "best"): 0, ("openml100:9976", "long"): 5,
}  # fmt: skip
TIED = ("pmlb:titanic",)


def _start(parts: Division) -> Array:
    return np.linalg.lstsq(np.column_stack([parts.X[0], np.ones(parts.sizes[0])]), parts.y[0], rcond=None)[0]


def _picked(found: Found, chosen: Array, parts: Division) -> list[Row]:
    """What validation chose: errors, k, alpha, and the cosine between its parameters and the least-squares start."""
    problems, coef, intercept = found
    start, result = _start(parts), []
    for row in chosen:
        wanted = row["method"], row["k"], row["alpha"]
        at = next(i for i, p in enumerate(problems) if (p.aggregate, p.k, p.alpha) == wanted)
        w = np.append(coef[at], intercept[at])
        size = np.linalg.norm(w) * np.linalg.norm(start)
        result.append(
            {
                "method": str(row["method"]), "k": float(row["k"]), "alpha": float(row["alpha"]),
                "cosine": float(w @ start / size) if size > 0 else 0.0,
                **{part: 1 - float(row[part] / n) for part, n in zip(PARTS, parts.sizes, strict=True)},
            }
        )  # fmt: skip
    return result


def run_one(key: Row) -> Row:
    """What every choice of a group picks on one split; for the first group, how the two minimisers compare."""
    parts = released_division(key["name"], key["split"])
    found = GROUPS[key["group"]](key["name"], key["split"], parts)
    result: Row = {"picked": {}}
    for choice, classifiers in found.items():
        rows = scored(*classifiers, parts)
        if key["group"] == "best":
            rows["validation"] = rows["test"]  # what choose() looks at
        result["picked"][choice] = _picked(classifiers, choose(rows, "paper"), parts)
        if choice == BASE:
            result["picked"]["ties to larger k"] = _picked(classifiers, choose(rows, "sound"), parts)
            result["picked"]["ties to smaller alpha"] = _picked(classifiers, choose_small(rows), parts)
    if key["group"] == "main":
        result["compared"] = _compared(found[BASE], found[THEIRS], parts)
    return result


def _compared(ours: Found, theirs: Found, parts: Division) -> list[Row]:
    """How often each minimiser ends lower, over the problems of a method."""
    own, other = objectives(*ours, parts), objectives(*theirs, parts)
    methods = np.array([problem.aggregate for problem in ours[0]])
    return [
        {
            "method": str(method),
            "lower": float((own < other * (1 - LOWER))[methods == method].mean()),
            "higher": float((other < own * (1 - LOWER))[methods == method].mean()),
        }
        for method in np.unique(methods)
    ]


def run(settings: Settings) -> None:
    keys = [
        {"name": name, "split": split, "group": group}
        for group in GROUPS
        for name in CELLS
        for split in range(min(settings.splits, FEWER.get((name, group), MOST[group])))
        if (not settings.sets or title(name) in settings.sets) and (group != "ties" or name in TIED)
    ]
    resume(settings.raw / "cells.jsonl", keys, run_one, settings.seconds)


def table(settings: Settings) -> list[Row]:
    """One row for each (cell, choice): its error, its change from our solver's paired by split, and what is left."""
    found: dict[tuple[str, str, str], dict[int, Row]] = {}
    compared: dict[tuple[str, str], list[Row]] = {}
    for line in read_lines(settings.raw / "cells.jsonl"):
        for choice, picked in line["picked"].items():
            for pick in picked:
                found.setdefault((line["name"], pick["method"], choice), {})[line["split"]] = pick
        for pair in line.get("compared", ()):
            compared.setdefault((line["name"], pair["method"]), []).append(pair)
    result = []
    for name, (loss, methods) in CELLS.items():
        for method in methods:
            mine = {choice: found[name, method, choice] for choice in CHOICES if (name, method, choice) in found}
            published = table3_error(title(name), loss, method) or float("nan")
            both = compared.get((name, method), [])
            for choice, numbers in summarised(mine).items():
                row: Row = {"set": title(name), "loss": loss, "method": method, "choice": choice} | numbers
                row["left"] = row["error"] - published
                for what in ("lower", "higher"):
                    row[what] = float(np.mean([pair[what] for pair in both])) if both and choice == THEIRS else ""
                result.append(row)
    return result


def summarised(mine: dict[str, dict[int, Row]]) -> dict[str, Row]:
    """Choice -> its numbers, from split -> what was picked.

    A choice that ran on fewer splits than our solver is measured by its change on those: splits differ by more than
    choices do. Its error is its reference's plus the change.
    """
    result: dict[str, Row] = {}
    for choice in (choice for choice in CHOICES if choice in mine):
        reference = reference_of(choice)
        used = sorted(set(mine[choice]) & set(mine.get(reference, ())))
        if len(used) < 2 or (choice != BASE and reference not in result):
            continue
        picks, others = [mine[choice][s] for s in used], [mine[reference][s] for s in used]
        change, change_se = mean_error([100 * (a["test"] - b["test"]) for a, b in zip(picks, others, strict=True)])
        error, error_se = mean_error([100 * pick["test"] for pick in picks])
        if len(used) < len(mine[BASE]):
            error = result[reference]["error"] + change
            error_se = float(np.hypot(result[reference]["error_se"], change_se))
        result[choice] = {
            "splits": len(used), "error": error, "error_se": error_se, "change": change, "change_se": change_se,
            "train": 100 * float(np.mean([a["train"] - b["train"] for a, b in zip(picks, others, strict=True)])),
            "cosine": float(np.median([pick["cosine"] for pick in picks])),
            "alpha": float(np.median([pick["alpha"] for pick in picks])),
            "k": float(np.median([pick["k"] for pick in picks])),
        }  # fmt: skip
    return result


def reference_of(choice: str) -> str:
    """What a choice is changed from.

    Examples
    --------
    >>> reference_of("every step"), reference_of("its descent from zero")
    ('our solver', 'released descent, wider grid')
    """
    return WIDE if choice.startswith("its descent") else BASE


def section(rows: list[Row]) -> list[str]:
    """Each cell's table, in Markdown."""
    parts = []
    for name, loss, method in dict.fromkeys((row["set"], row["loss"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["set"], row["loss"], row["method"]) == (name, loss, method)]
        lines = [
            [
                row["choice"], CHOICES[row["choice"]], f"{row['splits']:.0f}", f"{row['error']:.2f}",
                "-" if row["choice"] == BASE else signed(row["change"], row["change_se"]),
                signed(row["left"], row["error_se"]), "-" if row["choice"] == BASE else signed(row["train"]),
                f"{row['k']:.0f}", f"{row['alpha']:.0e}", f"{row['cosine']:.2f}",
            ]
            for row in mine
        ]  # fmt: skip
        header = ["choice", "what it is", "splits", "test error", "change", "left", "change in training", "k",
                  "alpha", "cosine"]  # fmt: skip
        parts += [f"### {name}, {loss}, {LABELS[method]}\n", markdown(header, lines), _who_is_lower(mine)]
    return parts


def _who_is_lower(rows: list[Row]) -> str:
    found = [row for row in rows if row["lower"] != ""]
    if not found:
        return ""
    return (
        f"\nOver the paper's grid our solver ends with the lower training objective in {found[0]['lower']:.0%} of the "
        f"problems, the released descent in {found[0]['higher']:.0%} (by more than {LOWER:.1%}).\n"
    )
