"""A comparison of our tables with the published ones, cell by cell: which differences exceed sampling error?

Tables 1, 2, 4 and 5 give fractions of data sets. They are compared as two proportions, with one win and one loss added
to each sample (Agresti & Caffo 2000), so that even the standard error of 0 of 94 is not zero. Both proportions are
based on largely the same data sets, so the test is conservative.

Table 3 contains mean errors over splits of the same data. Given the data, splits are independent draws, so the standard
error of a mean is computed from its splits. The paper reports no standard errors; its errors are assumed to vary across
splits as much as ours.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy import stats as scipy_stats

from closecall.report.formats import Row
from closecall.stats import SIGNIFICANCE, holm
from reproduction.protocol.grid import LABELS
from reproduction.protocol.published import LOSSES, METHODS, PairTable, table3_error
from reproduction.run.scores import Scores, title

from .formats import Column, Table, said, table_of
from .tables import pair_table


def proportions_test(wins: int, total: int, published: float, published_total: int) -> tuple[float, float, float]:
    """Return the Agresti-Caffo standard error of the difference between two fractions, with z and a two-sided p."""
    first = (wins + 1) / (total + 2)
    second = (round(published * published_total) + 1) / (published_total + 2)
    error = math.sqrt(first * (1 - first) / (total + 2) + second * (1 - second) / (published_total + 2))
    z = (first - second) / error
    return error, z, 2 * float(scipy_stats.norm.sf(abs(z)))


def pair_agreement(scores: Scores, published: PairTable) -> list[Row]:
    """Return every cell of a square table and its published value; Holm's correction is applied across both losses."""
    rows: list[Row] = []
    for loss in LOSSES:
        for record in pair_table(scores, loss, published.criterion, published).records:
            total = published.denominators[scores.model][0]
            error, z, p = proportions_test(record["wins"], record["datasets"], record["published"], total)
            names = {
                "table": published.name, **scores.where(loss),
                "cell": f"{LABELS[record['by']]} over {LABELS[record['beaten']]}", "ours": record["fraction"],
            }  # fmt: skip
            values = {name: record[name] for name in ("low", "high", "published", "difference")}
            rows.append({**names, **values, "standard_error": error, "z": z, "p": p})
    return _adjusted(rows)


def error_agreement(scores: Scores) -> list[Row]:
    """Return every error in Table 3 and its published value; Holm's correction is applied across both losses."""
    rows: list[Row] = []
    splits, t = scores.splits, scipy_stats.t
    for loss, (i, name), (j, method) in product(LOSSES, enumerate(map(title, scores.datasets)), enumerate(METHODS)):
        published = table3_error(name, loss, method)
        if published is None or splits < 2:
            continue
        errors = 100 * (1 - scores.test(loss)[i, j])
        ours, own = float(errors.mean()), float(errors.std(ddof=1)) / math.sqrt(splits)
        error = math.sqrt(2) * own
        z = (ours - published) / error if error else math.copysign(math.inf, ours - published)
        half = float(t.ppf(0.975, splits - 1)) * own
        rows.append(
            {
                "table": "table3", **scores.where(loss), "cell": f"{name}, {LABELS[method]}", "ours": ours,
                "low": ours - half, "high": ours + half, "published": published, "difference": ours - published,
                "standard_error": error, "z": z, "p": 2 * float(t.sf(abs(z), 2 * (splits - 1))),
            }
        )  # fmt: skip
    return _adjusted(rows)


def _adjusted(rows: list[Row]) -> list[Row]:
    adjusted = holm(np.array([row["p"] for row in rows]))
    return [{**row, "p_holm": float(value)} for row, value in zip(rows, adjusted, strict=True)]


def agreement_summary(rows: Sequence[Row]) -> Table:
    """Return a table that shows how many cells agree with the published ones."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["table"], row["model"], row["protocol"]), []).append(row)
    records: list[Row] = []
    for (table, model, protocol), group in groups.items():
        differences = [row["difference"] for row in group]
        records.append(
            {
                "table": table, "model": model, "protocol": protocol, "cells": len(group),
                "agree": sum(row["p"] >= SIGNIFICANCE for row in group),
                "agree_holm": sum(row["p_holm"] >= SIGNIFICANCE for row in group),
                "mean_difference": float(np.mean(differences)),
                "mean_absolute_difference": float(np.mean(np.abs(differences))),
            }
        )  # fmt: skip
    columns: dict[str, Column] = {
        "table, model, protocol": lambda r: f"{_name(r['table'])}, {r['model']}, {r['protocol']}",
        "agree": "{agree} of {cells}", "agree (Holm)": "{agree_holm} of {cells}",
        "mean diff.": "{mean_difference:+.3f}", "mean abs.": "{mean_absolute_difference:.3f}",
    }  # fmt: skip
    return table_of("agreement", "How many cells agree", columns, records, [said("note.agreement")])


def disagreement_table(rows: Sequence[Row], table: str, protocol: str) -> Table:
    """Return the cells that differ from the published ones; a star marks those left after Holm's correction."""
    mine = [row for row in rows if (row["table"], row["protocol"]) == (table, protocol)]
    apart = sorted((row for row in mine if row["p"] < SIGNIFICANCE), key=lambda row: -abs(row["z"]))
    heading = f"{_name(table)}, {protocol} protocol: {len(apart)} of {len(mine)} cells differ"
    columns: dict[str, Column] = {
        "cell": "{cell} ({model}, {loss})", "ours": "{ours:.2f}", "95 % interval": "{low:.2f} to {high:.2f}",
        "paper": "{published:.2f}", "difference": "{difference:+.2f}",
        "z": lambda r: f"{r['z']:+.1f}{'*' if r['p_holm'] < SIGNIFICANCE else ''}",
    }  # fmt: skip
    return table_of(f"differ-{table}-{protocol}", heading, columns, apart)


def _name(table: str) -> str:
    return table.replace("table", "Table ")
