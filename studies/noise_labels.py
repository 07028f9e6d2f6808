"""How often the guard of the searches takes a challenger where there is nothing to learn: labels that are pure noise.

    python -m studies.noise_labels --out noise.jsonl [--runs 200]    run (resumes: what the file holds is kept)
    python -m studies.noise_labels --out noise.jsonl --table         print the rates of what is there

Every case draws normal features and balanced labels without any relation to them, with its run's number as seed.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from closecall import AggregateLossClassifierCV
from closecall.evaluate.stats import fraction_interval

from .common import write_csv

#: name -> (aggregate, form of the classes, rows, columns, classes)
CASES = {
    f"{aggregate} {rows} x {columns}": (aggregate, "ovr", rows, columns, 2)
    for aggregate in ("close", "close_decay", "top", "atk")
    for rows, columns in ((200, 60), (100, 10), (400, 20))
} | {
    f"{aggregate} {form}, 3 classes {rows} x {columns}": (aggregate, form, rows, columns, 3)
    for form in ("ovr", "top_two")
    for aggregate, rows, columns in (("close_decay", 150, 10), ("close", 150, 10))
}


def taken(case: str, seed: int) -> bool:
    """Whether the search left its baseline."""
    aggregate, form, rows, columns, classes = CASES[case]
    rng = np.random.default_rng([seed, rows, columns])
    X, y = rng.normal(size=(rows, columns)), rng.permutation(np.arange(rows) % classes)
    model = AggregateLossClassifierCV(aggregate=aggregate, multiclass=form, refit=False).fit(X, y)
    return any(step["taken"] for step in model.guard_report_["comparisons"])


def read(path: Path) -> dict[tuple[str, int], bool]:
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return {(record["case"], record["seed"]): record["taken"] for record in records}


def run(path: Path, runs: int, cases: list[str]) -> None:
    done = read(path)
    with path.open("a") as file:
        for seed in range(runs):  # runs outside: a table of few runs of every case comes first
            for case in cases:
                if (case, seed) not in done:
                    file.write(json.dumps({"case": case, "seed": seed, "taken": taken(case, seed)}) + "\n")
                    file.flush()


def table(path: Path) -> None:
    found = read(path)
    print(f"{'case':42} runs  taken  95 % interval")
    for case in CASES:
        mine = [value for (name, _), value in found.items() if name == case]
        if mine:
            low, high = fraction_interval(sum(mine), len(mine))
            print(f"{case:42} {len(mine):4} {np.mean(mine):6.1%}  {low:.1%} to {high:.1%}")


def rates(path: Path) -> list[dict[str, object]]:
    """One row for each case that was run."""
    found, rows = read(path), []
    for case, (aggregate, form, _, _, classes) in CASES.items():
        mine = [value for (name, _), value in found.items() if name == case]
        if mine:
            low, high = fraction_interval(sum(mine), len(mine))
            shape = {"case": case.replace(" ", "_"), "aggregate": aggregate, "multiclass": form, "classes": classes}
            rows.append(shape | {"runs": len(mine), "taken": float(np.mean(mine)), "low": low, "high": high})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("noise.jsonl"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES), metavar="CASE")
    parser.add_argument("--csv", type=Path, help="write the rates and stop")
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    given = parser.parse_args()
    if given.csv:
        write_csv(given.csv, rates(given.out))
        return
    if not given.table:
        run(given.out, given.runs, given.cases)
    table(given.out)


if __name__ == "__main__":
    main()
