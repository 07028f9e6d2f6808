"""Methods on the same splits: accuracies -> one row for each (data set, method) -> summaries over all sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from closecall.report.text import p_value
from closecall.stats import corrected_test, holm
from reproduction.protocol.stats import average_ranks, mean_interval, wilcoxon
from reproduction.run.scores import title

from .common import Row, Settings, at_hand, dataset, lines_of, markdown, mean_error, resume, signed

#: The fewest rows of a PMLB set that methods are compared on.
FEWEST_ROWS = 100


def run_on_pmlb(settings: Settings, name: str, run_one: Callable[[Row], Row]) -> None:
    """Run an experiment's methods on the PMLB sets that are large enough and not too large, split by split."""
    names = [n for n in at_hand(["pmlb94"], settings.max_values, settings.sets) if len(dataset(n).y) >= FEWEST_ROWS]
    keys = [{"name": one, "split": split} for split in range(settings.splits) for one in names]
    resume(settings, name, keys, run_one)


def records_of(settings: Settings, name: str) -> list[Row]:
    """The raw lines of :func:`run_on_pmlb` as one record for each (set, split, method), for :func:`summarise`."""
    return [
        {
            "set": title(line["name"]), "split": line["split"], "method": method, "accuracy": value,
            "seconds": line["seconds"][method],
        }
        for line in lines_of(settings, name)
        for method, value in line["accuracy"].items()
    ]  # fmt: skip


def summarise(records: Sequence[Row], base: str, methods: Sequence[str], test_over_train: float = 1 / 3) -> list[Row]:
    """One row for each (set, method), each over the splits on which both it and the base ran.

    Parameters
    ----------
    records : sequence of rows with ``set``, ``split``, ``method``, ``accuracy`` and ``seconds``
    base : str
        The method that gains are measured against.
    methods : sequence of str
    test_over_train : float
        For Nadeau & Bengio's test.

    Returns
    -------
    rows : list of dict
        Accuracies and gains in percent with their standard errors over the splits, and p-values not corrected for
        multiple tests.

    Examples
    --------
    >>> lines = [{"set": "a", "split": s, "method": m, "accuracy": v, "seconds": 1.0}
    ...          for s, pair in enumerate([(0.8, 0.9), (0.7, 0.81)]) for m, v in zip("xy", pair)]
    >>> [(row["method"], round(row["gain"], 6)) for row in summarise(lines, "x", "xy")]
    [('x', 0.0), ('y', 10.5)]
    """
    found: dict[str, dict[str, dict[int, Row]]] = {}
    for record in records:
        found.setdefault(record["set"], {}).setdefault(record["method"], {})[record["split"]] = record
    rows = []
    for name, by_method in sorted(found.items()):
        if not set(methods) <= set(by_method):
            continue
        for method in methods:
            shared = sorted(set(by_method[method]) & set(by_method[base]))
            if not shared:
                continue
            mine, own = (100 * np.array([by_method[m][s]["accuracy"] for s in shared]) for m in (method, base))
            mean, error = mean_error(mine)
            gain, gain_error = mean_error(mine - own)
            p = 1.0
            if len(shared) > 1 and method != base:
                p = float(corrected_test(mine, own, test_over_train=test_over_train))
            seconds = float(np.median([by_method[method][s].get("seconds", np.nan) for s in shared]))
            rows.append(
                {
                    "set": name, "method": method, "splits": len(shared), "accuracy": mean, "se": error,
                    "gain": gain, "gain_se": gain_error, "p": p, "seconds": seconds,
                }
            )  # fmt: skip
    return rows


def overall(rows: Sequence[Row], base: str) -> list[Row]:
    """Summaries over the data sets: one row for each method, in order of first occurrence.

    ``mean``, ``low`` and ``high`` are the mean gain over ``base`` and its interval over the sets; ``better``
    and ``worse`` count sets (Nadeau & Bengio's test, Holm over the sets); ``up`` and ``down`` those of a point or more.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    sets = sorted({row["set"] for row in rows})
    at = {(row["set"], row["method"]): row for row in rows}
    accuracies = np.array([[at[name, method]["accuracy"] for method in methods] for name in sets])
    ranks = average_ranks(accuracies)
    result = []
    for place, method in enumerate(methods):
        mine = [at[name, method] for name in sets]
        gains = np.array([row["gain"] for row in mine])
        adjusted = holm(np.array([row["p"] for row in mine]))
        mean, low, high = mean_interval(gains)
        result.append(
            {
                "method": method, "sets": len(sets), "accuracy": float(accuracies[:, place].mean()), "mean": mean,
                "low": low, "high": high, "rank": float(ranks[place]),
                "better": int(((adjusted < 0.05) & (gains > 0)).sum()),
                "worse": int(((adjusted < 0.05) & (gains < 0)).sum()),
                "up": int((gains >= 1 - 1e-9).sum()), "down": int((gains <= -1 + 1e-9).sum()),
                "wilcoxon": wilcoxon(accuracies[:, place], accuracies[:, methods.index(base)]),
                "seconds": float(np.median([row["seconds"] for row in mine])),
            }
        )  # fmt: skip
    return result


def overall_table(found: Sequence[Row], labels: dict[str, str], base: str, *, times: bool = True) -> str:
    """The Markdown of :func:`overall`."""
    header = [
        "method", "mean accuracy", f"mean gain over {labels.get(base, base)} (95 % interval)", "a point better / worse",
        "significantly better / worse", "mean rank", "Wilcoxon p",
    ]  # fmt: skip
    lines: list[list[Any]] = []
    for row in found:
        own = row["method"] == base
        line = [
            labels.get(row["method"], row["method"]), f"{row['accuracy']:.2f}",
            "-" if own else f"{signed(row['mean'])} ({signed(row['low'])} to {signed(row['high'])})",
            "-" if own else f"{row['up']:.0f} / {row['down']:.0f}",
            "-" if own else f"{row['better']:.0f} / {row['worse']:.0f}",
            f"{row['rank']:.2f}", "-" if own else p_value(row["wilcoxon"]),
        ]  # fmt: skip
        lines.append(line + ([f"{row['seconds']:.2f}"] if times else []))
    return markdown(header + (["median seconds"] if times else []), lines)


def per_set_table(rows: Sequence[Row], methods: Sequence[str], labels: dict[str, str], base: str) -> str:
    """Accuracy of the base with its standard error, and the gain of every other method, for each data set."""
    at = {(row["set"], row["method"]): row for row in rows}
    others = [method for method in methods if method != base]
    lines = []
    for name in sorted({row["set"] for row in rows}):
        own = at[name, base]
        gains = [signed(at[name, method]["gain"], at[name, method]["gain_se"], 1) for method in others]
        lines.append([name, f"{own['accuracy']:.1f} ± {own['se']:.1f}", *gains])
    return markdown(["data set", labels.get(base, base), *(labels.get(m, m) for m in others)], lines)
