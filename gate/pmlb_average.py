"""`AggregateLossClassifier(aggregate="average")` against LogisticRegression on PMLB's sets, unscaled and scaled.

Defaults, cold start. Printed for each set: the training objective over the lower of scikit-learn's newton-cholesky and
L-BFGS, both run to a tight tolerance, and whether ours warned. A ratio above 1.001 without a warning is a failure.

    python -m gate.pmlb_average --out pmlb_average.csv
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from closecall import AggregateLossClassifier
from reproduction.protocol import load_dataset
from reproduction.protocol.suites import SUITES

WITHIN = 1.001


def objective(model: Any, X: np.ndarray, signs: np.ndarray) -> float:
    margins = signs * (X @ model.coef_[0] + model.intercept_[0])
    return float(np.logaddexp(0, -margins).sum() + 0.5 * (model.coef_[0] ** 2).sum())


def peer(X: np.ndarray, signs: np.ndarray) -> float:
    """The lower objective of two of scikit-learn's solvers."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for solver, steps in (("newton-cholesky", 300), ("lbfgs", 10_000)):
            found.append(objective(LogisticRegression(solver=solver, tol=1e-9, max_iter=steps).fit(X, signs), X, signs))
    return min(value for value in found if np.isfinite(value))


def compare(name: str, scaled: bool) -> dict[str, Any]:
    data = load_dataset(name, download=False)
    X, signs = np.asarray(data.X, dtype=float), data.signs()
    if scaled:
        X = StandardScaler().fit_transform(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = AggregateLossClassifier(aggregate="average").fit(X, signs)
    warned = any(issubclass(item.category, ConvergenceWarning) for item in caught)
    ratio = objective(model, X, signs) / peer(X, signs)
    return {"name": name, "scaled": scaled, "ratio": ratio, "gap": float(model.gap_[0]), "warned": warned}


def known(path: Path) -> list[dict[str, Any]]:
    """What an earlier run has found: a run that was ended goes on where it stood."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["warned"]]
    return [
        {"name": row["name"], "ratio": float(row["ratio"]), "gap": float(row["gap"])}
        | {key: row[key] == "True" for key in ("scaled", "warned")}
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("pmlb_average.csv"))
    given = parser.parse_args()
    lines = known(given.out)
    done = {(line["name"], line["scaled"]) for line in lines}
    with given.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, ("name", "scaled", "ratio", "gap", "warned"))
        if not lines:
            writer.writeheader()
        for name in SUITES["pmlb94"]:
            for scaled in (False, True):
                if (name, scaled) in done:
                    continue
                lines.append(compare(name, scaled))
                writer.writerow(lines[-1])
                file.flush()
    wrong = [line for line in lines if line["ratio"] > WITHIN and not line["warned"]]
    worst = max(line["ratio"] for line in lines if not line["warned"])
    print(f"worst ratio without a warning {worst:.8f}")
    print(f"{len(lines)} fits, {sum(line['warned'] for line in lines)} warned, {len(wrong)} wrong without a warning")
    for line in wrong:
        print(line)


if __name__ == "__main__":
    main()
