"""Another test on the published predictions: McNemar's, set by set.

The tables compare accuracies over splits. The predictions for every test example can answer other questions. Here, for
the first split of each data set: of the examples on which close decay and average disagree, does one of them get more
right than chance explains? P-values are exact and two-sided, with Holm's correction over the sets.

Run it as ``python examples/new_test.py``, followed by a suite and a protocol if not ``pmlb94`` and ``paper``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from scipy.stats import binomtest

from closecall.stats import holm
from reproduction.run.predictions import read_predictions

FOLDER = Path(__file__).parent.parent / "docs" / "results" / "predictions"


def mcnemar(frame: pd.DataFrame, loss: str, split: int = 0) -> pd.DataFrame:
    """For each data set, how many examples only one of the two gets right, and McNemar's exact p-value, adjusted."""
    frame = frame[frame["split"] == split]
    right = {name: frame[f"{loss}.{name}"] == frame["truth"] for name in ("average", "close_decay")}
    alone = pd.DataFrame({
        "close_decay": right["close_decay"] & ~right["average"], "average": right["average"] & ~right["close_decay"],
    })  # fmt: skip
    found = alone.groupby(frame["dataset"], observed=True).sum()
    tests = [
        binomtest(close, close + average).pvalue if close + average else 1.0 for close, average in found.to_numpy()
    ]
    return found.assign(p=holm(pd.Series(tests).to_numpy()))


if __name__ == "__main__":
    suite, protocol = sys.argv[1:3] if len(sys.argv) > 2 else ("pmlb94", "paper")
    frame = read_predictions(FOLDER, suite, protocol)
    for loss in ("logistic", "hinge"):
        found = mcnemar(frame, loss)
        sure = found[found["p"] < 0.05]
        better = int((sure["close_decay"] > sure["average"]).sum())
        print(f"{loss}: close decay is better on {better} and worse on {len(sure) - better} of {len(found)} sets")
        print(sure.sort_values("p").to_string(float_format="{:.2g}".format) if len(sure) else "")
