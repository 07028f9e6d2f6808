"""Compare ``CloseKClassifierCV()`` as it comes with LogisticRegressionCV, with and without a tuned threshold.

    python benchmarks/classifiers.py --out results.jsonl        run (resumes: what the file holds is not run again)
    python benchmarks/classifiers.py --out results.jsonl --table    print the table of what is there
    python benchmarks/classifiers.py --out results.jsonl --csv table.csv    write what the pages quote
    python benchmarks/classifiers.py --speed                    print the times of fitting beside scikit-learn's

The data are the PMLB sets of the paper with at most ``--max-values`` values, read from the data directory (set
CLOSECALL_DATA). A split is a stratified 75/25 one with its number as seed. A StandardScaler, fitted on the training
part, stands in front of every side, and every side searches the same eleven strengths with five folds.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import closecall
from closecall.data import available, load_dataset
from closecall.evaluate.stats import corrected_test, fraction_interval, holm

ALPHAS = np.logspace(-5, 5, 11)
TEST_SIZE = 0.25


def logistic_cv(folds: int) -> Any:
    return LogisticRegressionCV(Cs=1 / ALPHAS[::-1], cv=folds)


def tuned_threshold(folds: int) -> Any:
    """LogisticRegressionCV with its threshold moved for accuracy by cross-validation."""
    return TunedThresholdClassifierCV(logistic_cv(folds), scoring="accuracy", cv=folds)


METHODS: dict[str, Callable[[int], Any]] = {
    "close": lambda folds: closecall.CloseKClassifierCV(),
    "logistic": logistic_cv,
    "threshold": tuned_threshold,
}


def data_sets(max_values: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for member in available("pmlb94"):
        if member.at_hand:
            data = load_dataset(member.name)
            X, y = data.matrix_paper(), data.signs()
            if X.size <= max_values:
                yield member.title, X, y


def run_one(name: str, X: np.ndarray, y: np.ndarray, split: int, method: str) -> dict[str, Any]:
    parts = StratifiedShuffleSplit(1, test_size=TEST_SIZE, random_state=split).split(X, y)
    train, test = next(parts)
    folds = min(5, int(np.unique(y[train], return_counts=True)[1].min()))
    model = make_pipeline(StandardScaler(), METHODS[method](folds))
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's convergence and deprecation notices
        model.fit(X[train], y[train])
    seconds = time.process_time() - begin
    record = {"set": name, "split": split, "method": method, "accuracy": model.score(X[test], y[test])}
    record |= {"seconds": round(seconds, 4), "version": closecall.__version__, "sklearn": sklearn.__version__}
    if method == "close":
        record["chosen"] = model[-1].best_params_
    return record


def chooses(name: str) -> bool:
    """Whether a data set is of the half on which the guard's strength was chosen, with splits of its own."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def read(path: Path) -> list[dict[str, Any]]:
    """Records of the file; a line that a killed run left half written is dropped."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def run(path: Path, splits: int, max_values: int, only: list[str], methods: list[str]) -> None:
    done = {(r["set"], r["split"], r["method"]) for r in read(path)}
    sets = [item for item in data_sets(max_values) if not only or item[0] in only]
    with path.open("a") as file:
        file.write("\n" if path.stat().st_size and not path.read_text().endswith("\n") else "")
        for split in range(splits):  # splits outside: a table of few splits over all sets comes first
            for name, X, y in sets:
                for method in methods:
                    if (name, split, method) not in done:
                        file.write(json.dumps(run_one(name, X, y, split, method)) + "\n")
                        file.flush()


def table(path: Path) -> None:
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for record in read(path):
        scores.setdefault(record["set"], {}).setdefault(record["method"], {})[record["split"]] = record["accuracy"]
    rows: dict[str, list[tuple[str, float, float]]] = {"logistic": [], "threshold": []}
    print(f"{'data set':62} {'rival':10} splits  close   rival    gain  corrected p")
    for name, by_method in sorted(scores.items()):
        for rival, outcomes in rows.items():
            shared = sorted(set(by_method.get("close", {})) & set(by_method.get(rival, {})))
            if len(shared) < 2:
                continue
            ours, theirs = (np.array([by_method[method][split] for split in shared]) for method in ("close", rival))
            p = float(corrected_test(ours, theirs, test_over_train=TEST_SIZE / (1 - TEST_SIZE)))
            outcomes.append((name, 100 * float((ours - theirs).mean()), p))
            print(f"{name:62} {rival:10} {len(shared):6} {100 * ours.mean():6.2f} {100 * theirs.mean():7.2f} "
                  f"{outcomes[-1][1]:+7.2f}  {p:.3f}")  # fmt: skip
    for rival, outcomes in rows.items():
        if outcomes:
            summary(rival, outcomes)


def write_summary(path: Path, records: list[dict[str, Any]]) -> None:
    """One row for all sets and one for each half: against LogisticRegressionCV, with the ratio of processor times."""
    found: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    for record in records:
        found.setdefault(record["set"], {}).setdefault(record["method"], {})[record["split"]] = record
    rows = []
    for part, wanted in (("all", (True, False)), ("chose", (True,)), ("other", (False,))):
        gains, seconds, splits = [], {"close": 0.0, "logistic": 0.0}, []
        for name, by in found.items():
            shared = sorted(set(by.get("close", {})) & set(by.get("logistic", {}))) if chooses(name) in wanted else []
            if shared:
                pairs = [(by["close"][split], by["logistic"][split]) for split in shared]
                gains.append(100 * np.mean([ours["accuracy"] - theirs["accuracy"] for ours, theirs in pairs]))
                splits.append(len(shared))
                for method in seconds:
                    seconds[method] += sum(by[method][split]["seconds"] for split in shared)
        up, down = (np.array(gains) >= 1).sum(), (np.array(gains) <= -1).sum()
        rows.append({
            "part": part, "sets": len(gains), "splits": min(splits), "better": up, "better_share": up / len(gains),
            "worse": down, "mean": np.mean(gains), "least": min(gains), "time": seconds["close"] / seconds["logistic"],
        })  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{v:.4g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows)


def summary(rival: str, outcomes: list[tuple[str, float, float]]) -> None:
    """Fractions of the sets, of all and of the halves by the hash of the name, the first of which chose the guard."""
    gains, p = np.array([gain for _, gain, _ in outcomes]), holm(np.array([p for _, _, p in outcomes]))
    first = np.array([chooses(name) for name, _, _ in outcomes])
    print(f"\nagainst {rival}, {len(gains)} sets")
    for label, part in (("all", first | True), ("the half that chose", first), ("the other half", ~first)):
        g, q = gains[part], p[part]
        up, down = g >= 1, g <= -1
        low, high = fraction_interval(int(up.sum()), len(g))
        print(f"  {label:24} better by a point {100 * up.mean():5.1f} % (95 %: {100 * low:.0f}-{100 * high:.0f})  "
              f"worse {100 * down.mean():4.1f} %  significantly better {int(((q < 0.05) & (g > 0)).sum())}, "
              f"worse {int(((q < 0.05) & (g < 0)).sum())} (Holm)  mean gain {g.mean():+.2f}")  # fmt: skip


def speed(repeats: int) -> None:
    """Processor times of fitting all rows, best of a few, in turns: a busy machine does not blur them."""
    print(f"{'data set':10} {'rows':>6} {'columns':>7} {'CloseKClassifierCV':>19} {'LogisticRegressionCV':>21} ratio")
    for name in ("monk3", "phoneme", "spambase", "adult"):
        data = load_dataset(f"pmlb:{name}")
        X, y = StandardScaler().fit_transform(data.matrix_paper()), data.signs()
        times: dict[str, list[float]] = {"close": [], "logistic": []}
        for _ in range(repeats):
            for method, spent in times.items():
                begin = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    METHODS[method](5).fit(X, y)
                spent.append(time.process_time() - begin)
        ours, theirs = min(times["close"]), min(times["logistic"])
        print(
            f"{name:10} {X.shape[0]:6} {X.shape[1]:7} {ours:17.2f} s {theirs:19.2f} s {ours / theirs:5.2f}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("classifiers.jsonl"))
    parser.add_argument("--splits", type=int, default=25)
    parser.add_argument("--max-values", type=int, default=60_000)
    parser.add_argument("--sets", nargs="*", default=[], help="only these data sets")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--csv", type=Path, help="write the summary and stop")
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    parser.add_argument("--speed", action="store_true", help="print fitting times and stop")
    parser.add_argument("--repeats", type=int, default=3, help="of --speed")
    given = parser.parse_args()
    if given.csv:
        write_summary(given.csv, read(given.out))
        return
    if given.speed:
        speed(given.repeats)
    elif not given.table:
        run(given.out, given.splits, given.max_values, given.sets, given.methods)
    if not given.speed:
        table(given.out)


if __name__ == "__main__":
    main()
