"""How long the exact 0-1 minimum takes: 300 rows and five columns of several kinds, and the two published sets.

Each is given ten minutes. Where time runs out, the fewest errors found and the bound proven by then are kept.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from closecall import CloseKClassifier
from closecall.theory import minimum_errors
from reproduction.protocol.suites import SUITES
from reproduction.run.scores import title

from .common import Array, Experiment, Row, Settings, dataset, lines_of, made_by, markdown, resume

ROWS, COLUMNS, LIMIT = 300, 5, 600.0


def _labels(scores: Array, flipped: float, rng: np.random.Generator) -> Array:
    return np.where((scores > 0) ^ (rng.random(len(scores)) < flipped), 1.0, -1.0)


def _normal(flipped: float) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    def make(rng: np.random.Generator) -> tuple[Array, Array]:
        X = rng.normal(size=(ROWS, COLUMNS))
        return X, _labels(X @ rng.normal(size=COLUMNS) + 0.2, flipped, rng)

    return make


def _overlap(rng: np.random.Generator) -> tuple[Array, Array]:
    y = rng.choice([-1.0, 1.0], ROWS)
    return rng.normal(size=(ROWS, COLUMNS)) + 0.6 * y[:, None] * rng.normal(size=COLUMNS), y


def _discrete(rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.integers(0, 4, (ROWS, COLUMNS)).astype(float)
    return X, _labels((X - 1.5) @ rng.normal(size=COLUMNS), 0.1, rng)


def _heavy(rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.standard_t(2, (ROWS, COLUMNS))
    return X, _labels(X @ rng.normal(size=COLUMNS), 0.1, rng)


def _curved(rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.uniform(-1, 1, (ROWS, COLUMNS))
    return X, _labels(X[:, 0] * X[:, 1] + X[:, 2], 0.0, rng)


#: Generated kinds, then sets of which the first columns of a sample of rows are taken, then whole sets.
KINDS: dict[str, Callable[[np.random.Generator], tuple[Array, Array]]] = {
    "nearly separable (5 % flipped)": _normal(0.05),
    "noisy (15 % flipped)": _normal(0.15),
    "two normals that overlap": _overlap,
    "four values, many ties": _discrete,
    "heavy tails": _heavy,
    "curved boundary": _curved,
}
SAMPLED = ("pmlb:phoneme", "pmlb:irish", "pmlb:diabetes")


def data_of(name: str) -> tuple[Array, Array]:
    """Standardised columns and labels of a kind or a set.

    Examples
    --------
    >>> data_of("curved boundary")[0].shape
    (300, 5)
    """
    if name in KINDS:
        X, y = KINDS[name](np.random.default_rng([list(KINDS).index(name), 2026]))
    else:
        data = dataset(name)
        X, y = data.matrix_paper(), data.signs()
        if name in SAMPLED:
            rows = np.random.default_rng(0).permutation(len(y))[:ROWS]
            X, y = X[rows, :COLUMNS], y[rows]
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def run_one(key: Row) -> Row:
    X, y = data_of(key["set"])
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where the close-k fit has not settled: it is only a start
        model = CloseKClassifier(k=0.1, alpha=0.01).fit(X, y)
    best = minimum_errors(X, y, start=model.coef_[0], time_limit=LIMIT)
    return {
        "rows": len(y), "columns": X.shape[1], "close": int((model.predict(X) != y).sum()), "found": best.errors,
        "bound": best.lower_bound, "proven": int(best.proven), "method": best.method,
        "seconds": time.process_time() - began,
    }  # fmt: skip


def run(settings: Settings) -> None:
    names = settings.sets or [*SUITES["he2"], *KINDS, *SAMPLED]
    resume(settings, "exact", [{"set": name, "split": 0} for name in names], run_one)


def table(settings: Settings) -> list[Row]:
    """A row for each set, in the order in which it was asked for."""
    return [{name: value for name, value in line.items() if name != "split"} for line in lines_of(settings, "exact")]


def page(rows: list[Row], figure: Path) -> str:
    open_ = [row for row in rows if not row["proven"]]
    five = [row for row in rows if (row["rows"], row["columns"]) == (ROWS, COLUMNS)]
    gap = max((row["found"] - row["bound"] for row in five), default=0)
    lines = [
        [title(row["set"]), f"{row['rows']:.0f} x {row['columns']:.0f}", f"{row['close']:.0f}",
         f"{row['found']:.0f}", "proven" if row["proven"] else f"at least {row['bound']:.0f}", row["method"],
         f"{row['seconds']:.1f}"]
        for row in rows
    ]  # fmt: skip
    return "\n".join(
        [
            "# How long the exact minimum takes\n",
            f"**The fewest errors of any linear classifier are proven for {len(rows) - len(open_)} of {len(rows)} "
            f"sets, in at most {max(row['seconds'] for row in rows if row['proven']):.0f} seconds each.**\n",
            markdown(
                ["set", "rows x columns", "close-k", "fewest errors found", "minimum", "method", "seconds"], lines
            ),
            "\n## How it was measured\n",
            f"`closecall.theory.minimum_errors`, which begins at a close-k model and may take {LIMIT / 60:.0f} minutes "
            f"of wall time: {len(KINDS)} kinds of generated sets of {ROWS} rows and {COLUMNS} columns, the first "
            f"{COLUMNS} columns of {ROWS} rows of {len(SAMPLED)} PMLB sets, and two published sets whole. "
            f"The largest gap between the fewest errors found and the proven bound, among the sets of {ROWS} rows and "
            f"{COLUMNS} columns, is {gap:.0f}. "
            "Times are processor seconds of one core, which other work shared.\n",
            made_by("exact"),
        ]
    )


EXPERIMENT = Experiment("exact", run, table, page, splits=1)
