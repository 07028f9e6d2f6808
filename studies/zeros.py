"""How often validation chooses an `atk` whose optimum is w = 0, where its predictions are what the solver left.

    python -m studies.zeros --out docs/results/beyond/zeros.csv

With k at most twice the smaller class, the k largest losses of w = 0 and b = 0 are k times the threshold, and where no
direction lowers them all this is the minimum: a solution there has no direction of its own. A row of the grid counts as
such if its objective is within a thousandth of that value. Every second PMLB set of 100 rows or more and at most 20,000
values, two splits of the sound protocol, the paper's whole grid.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from closecall.evaluate.grid import choose
from closecall.losses import get_loss

from .common import Array, Row, at_hand, dataset, division, write_csv
from .starts import solved

SPLITS = 2
NEAR = 1e-3


def at_zero(rows: Array, samples: int) -> Array:
    """Which rows of a solved grid have w = 0 as their minimum."""
    value = rows["k"] * np.array([get_loss(str(loss)).threshold for loss in rows["loss"]])
    return (rows["method"] == "atk") & (rows["k"] < samples) & (rows["objective"] >= (1 - NEAR) * value)


def run_one(name: str, split: int) -> list[Row]:
    """For each loss: the share of `atk` rows at zero, whether the chosen one is, and its gain over average."""
    parts = division(name, split)
    rows = solved(parts, "least_squares")
    zero, found = at_zero(rows, parts.sizes[0]), []
    picked = {(row["loss"], row["method"]): row for row in choose(rows, "sound")}
    for loss in ("logistic", "hinge"):
        row, mine = picked[loss, "atk"], (rows["loss"] == loss) & (rows["method"] == "atk")
        same = mine & (rows["k"] == row["k"]) & (rows["alpha"] == row["alpha"])
        gain = (float(row["test"]) - float(picked[loss, "average"]["test"])) / parts.sizes[2]
        found.append({"loss": loss, "share": zero[mine].mean(), "chosen": bool(zero[same].any()), "gain": 100 * gain})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    names = [name for name in at_hand(["pmlb94"], 20_000) if len(dataset(name).y) >= 100][::2]
    lines = [line for split in range(SPLITS) for name in names for line in run_one(name, split)]
    rows = []
    for loss in ("logistic", "hinge"):
        mine = [line for line in lines if line["loss"] == loss]
        rows.append({
            "loss": loss, "sets": len(names), "choices": len(mine), "share": float(np.mean([m["share"] for m in mine])),
            "at_zero": sum(m["chosen"] for m in mine), "fraction": float(np.mean([m["chosen"] for m in mine])),
            "gain": float(np.mean([m["gain"] for m in mine if m["chosen"]])),
        })  # fmt: skip
    write_csv(given.out, rows)


if __name__ == "__main__":
    main()
