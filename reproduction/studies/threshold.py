"""Moving the threshold of a classifier: the exact, guarded one against TunedThresholdClassifierCV, on PMLB sets."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV

from closecall.model_selection import ExactThresholdClassifier

from .common import (
    Experiment,
    Row,
    Settings,
    division,
    interval_chart,
    made_by,
    of_sets,
    resume,
    save_chart,
    with_enough,
)
from .compare import overall, overall_table, per_set_table, records_of, summarise
from .referee import pmlb_keys

BASES = {"logistic": "LogisticRegression", "boosting": "HistGradientBoosting"}
KINDS = {"": "", "_tuned": ", TunedThresholdClassifierCV", "_exact": ", ExactThresholdClassifier"}
LABELS = {f"{base}{kind}": f"{name}{words}" for base, name in BASES.items() for kind, words in KINDS.items()}
METHODS = tuple(LABELS)


def models() -> dict[str, Any]:
    """Every base model with its own threshold, the tuned one and the exact one."""
    found = {}
    for base, model in (
        ("logistic", LogisticRegression(max_iter=1000)),
        ("boosting", HistGradientBoostingClassifier(early_stopping=False, random_state=0)),
    ):
        found[base] = model
        found[f"{base}_tuned"] = TunedThresholdClassifierCV(model, scoring="accuracy")
        found[f"{base}_exact"] = ExactThresholdClassifier(model, n_bootstrap=0)
    return found


def run_one(key: Row) -> Row:
    """Test accuracy and seconds of each."""
    parts = division(key["name"], key["split"])
    X, y = np.concatenate(parts.X[:2]), np.concatenate(parts.y[:2])
    result: Row = {"accuracy": {}, "seconds": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's notices on convergence
        for method, model in models().items():
            began = time.process_time()
            model.fit(X, y)
            result["seconds"][method] = round(time.process_time() - began, 4)
            result["accuracy"][method] = float(model.score(parts.X[2], parts.y[2]))
    return result


def run(settings: Settings) -> None:
    resume(settings, "threshold", pmlb_keys(settings), run_one)


def table(settings: Settings) -> list[Row]:
    """One row for each (set, method); gains are over the same model with its own threshold."""
    records = with_enough(records_of(settings, "threshold"), settings.splits)
    return [row for base in BASES for row in summarise(records, base, [m for m in METHODS if m.startswith(base)])]


def page(rows: list[Row], figure: Path) -> str:
    parts, shown, said, lost = [], [], [], {"tuned": 0.0, "exact": 0.0}
    for base, name in BASES.items():
        mine = [row for row in rows if row["method"].startswith(base)]
        found = overall(mine, base)
        shown += [row | {"label": LABELS[row["method"]]} for row in found if row["method"] != base]
        at = {row["method"]: row for row in found}
        tuned, exact = at[f"{base}_tuned"], at[f"{base}_exact"]
        lost = {"tuned": lost["tuned"] + tuned["down"], "exact": lost["exact"] + exact["down"]}
        ahead = float(exact["accuracy"] - tuned["accuracy"])
        said.append(
            f"{name}: with the exact threshold the mean accuracy is {abs(ahead):.2f} points "
            f"{'above' if ahead >= 0 else 'below'} that with the tuned one; it loses a point on "
            f"{of_sets(exact['down'], exact['sets'])} sets, the tuned one on {of_sets(tuned['down'], tuned['sets'])}."
        )
        parts += [f"\n## {name}\n", overall_table(found, LABELS, base), "",
                  per_set_table(mine, [m for m in METHODS if m.startswith(base)], LABELS, base)]  # fmt: skip
    save_chart(interval_chart(shown, label="label", title="mean gain over the model's own threshold (points)"), figure)
    return "\n".join(
        [
            "# Moving the threshold\n",
            "**The exact threshold loses a point less often than the tuned one.**\n"
            if lost["exact"] < lost["tuned"]
            else "**The exact threshold loses a point as often as the tuned one, or more often.**\n",
            "\n".join(f"- {line}" for line in said),
            f"\n![Gains](beyond/{figure.name})\n",
            *parts,
            "\n## How it was measured\n",
            "`ExactThresholdClassifier` finds the exact optimum on cross-fitted scores and moves there only if the "
            "gain is real; `TunedThresholdClassifierCV` moves to the best of 100 thresholds. The same PMLB sets and "
            "splits as in [the guarded choice](beyond-referee.md).\n",
            made_by("threshold"),
        ]
    )


EXPERIMENT = Experiment("threshold", run, table, page)
