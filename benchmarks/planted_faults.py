# ruff: noqa: E501 - a fault quotes the line that it changes
"""Plant faults in the source, one at a time, and see which of them no test kills.

    python benchmarks/planted_faults.py                 every fault, each against the tests named with it
    python benchmarks/planted_faults.py leaked weight   only faults whose name contains one of the words
    python benchmarks/planted_faults.py --list          names only

The package is copied to a temporary folder, a line is changed there, and the tests run against the copy. A fault that
no longer fits the source is an error: move it along with the code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ANSWERS, SEARCH = "tests/linear/test_answers.py", "tests/linear/test_search.py"
LAWS, CLASSES = "tests/linear/test_laws.py", "tests/linear/test_multiclass.py"
PARAMETERS, ESTIMATORS = "tests/linear/test_parameters.py", "tests/linear/test_estimators.py"


@dataclass(frozen=True)
class Fault:
    """A change of one place, and the tests that should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = [
    # --- who starts where
    Fault("leaked start: fresh folds start at the folds that chose", "linear/race.py",
          "keys.append((known.get((setting.loss, alpha, form), -1), fold))",
          "keys.append((known.get((setting.loss, alpha, form), -1), fold % self.folds))", (ANSWERS,)),
    Fault("leaked start: close starts at the average", "linear/race.py",
          "if not begins_convex or not alike", "if not alike", (ANSWERS,)),
    Fault("leaked start: calibration starts where the fit started", "linear/calibration.py",
          "if not isinstance(options.init, str):", "if False:", (ANSWERS,)),
    Fault("leaked start: a pilot of all folds", "solvers/convex.py",
          "second_order(design, loss, masses[fold], alpha, start[alike[:1]], ahead)[0]",
          "second_order(design, loss, masses[0], alpha, start[alike[:1]], ahead)[0]", (ANSWERS, "tests/solvers/test_parity.py")),
    # --- who chooses what it is asked about
    Fault("the guard asks the folds that chose", "linear/race.py",
          "means = ((sums - table[whole, fold]) / (self.finals - 1) for fold in range(self.finals))",
          "means = (sums / self.finals for fold in range(self.finals))", (SEARCH, ANSWERS)),
    Fault("the guard is half as strict", "linear/guard.py",
          "needed = guard * error if guard > 0 else 0.0", "needed = 0.5 * guard * error if guard > 0 else 0.0", (SEARCH,)),
    Fault("the standard error forgets its root", "linear/guard.py",
          "float(np.sqrt(mass @ (gains - mean) ** 2 / total / total))", "float(mass @ (gains - mean) ** 2 / total / total)",
          (SEARCH,)),
    Fault("ties go to the smaller k", "linear/guard.py",
          "np.lexsort((-alphas, -masses, -np.round(means, 12)))", "np.lexsort((-alphas, masses, -np.round(means, 12)))",
          (SEARCH, "src/closecall/linear/guard.py")),
    # --- weights
    Fault("class weight in scoring", "linear/training.py",
          "return Training(X, codes, mass, classes, row_hashes(X), rows, weight)",
          "return Training(X, codes, mass, classes, row_hashes(X), rows)", (ANSWERS,)),
    Fault("class weight in calibration", "linear/calibration.py",
          "return fit_calibrators(method, scores, training.codes, training.weight)",
          "return fit_calibrators(method, scores, training.codes, training.mass)", (ANSWERS,)),
    Fault("dropped class weight", "linear/training.py", "weight, mass = mass, mass * factors[codes]",
          "weight, mass = mass, mass * 1.0", (PARAMETERS, ANSWERS)),
    Fault("dropped weight in the accuracy of the folds", "linear/race.py",
          "right @ (self.training.weight[rows] / self.training.weight[rows].sum())", "right.mean(axis=1)", (LAWS, ANSWERS)),
    Fault("dropped weight in the guard's gain", "linear/race.py",
          "return paired_examples(gains[tested] / seen[tested], self.training.weight[tested])",
          "return paired_examples(gains[tested] / seen[tested], np.ones(tested.sum()))", (LAWS, ANSWERS)),
    Fault("dropped weight in another score", "linear/scoring.py",
          "return float(self.scoring(self.shell, X, labels, sample_weight=weight))",
          "return float(self.scoring(self.shell, X, labels))", (LAWS, ANSWERS)),
    Fault("dropped weight in the merged rows", "linear/training.py",
          "mass = np.add.reduceat(mass, chosen)", "mass = mass[chosen]", (LAWS,)),
    # --- ignored parameters
    Fault("ignored m in the problem", "linear/guard.py",
          "return Problem(self.loss, self.aggregate, k, self.alpha, m)",
          "return Problem(self.loss, self.aggregate, k, self.alpha)", (ANSWERS, PARAMETERS)),
    Fault("ignored m in the refit", "linear/guard.py",
          "return Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)",
          "return Problem(self.loss, self.aggregate, self.k, self.alpha)", (ANSWERS, PARAMETERS)),
    Fault("ignored k above a fold", "linear/guard.py",
          "if isinstance(k, Integral) and k > mass:", "if False:", (ANSWERS,)),
    Fault("ignored groups", "linear/splits.py", "    _check_groups(cv, groups)\\n", "", (ANSWERS,)),
    Fault("ignored calibration of the search", "linear/search.py",
          "if self.calibration is not None:\\n            self.calibrators_", "if False:\\n            self.calibrators_",
          (PARAMETERS, ANSWERS)),
    Fault("ignored penalize_intercept", "linear/fitting.py",
          '"penalize_intercept": options.penalize_intercept, "dtype": dtype}', '"penalize_intercept": False, "dtype": dtype}',
          (PARAMETERS,)),
    Fault("ignored exact intercept in the refit", "linear/search.py",
          "models = fit_setting(training, problem, options, chosen.exact_intercept)",
          "models = fit_setting(training, problem, options, False)", (SEARCH, ANSWERS)),
    # --- classes
    Fault("the baseline of many classes is the challengers' form", "linear/search.py",
          'baselines = [[Setting("logistic", "average", None, alpha, multiclass="softmax") for alpha in alphas]]',
          'baselines = [[Setting("logistic", "average", None, alpha, multiclass=form) for alpha in alphas]]', (ANSWERS,)),
    Fault("the refit of many classes forgets the form", "linear/search.py",
          "chosen.multiclass or self.multiclass", "self.multiclass", (ANSWERS,)),
    Fault("a joint step with the wrong fold's mass", "linear/joint.py",
          "mass = slice(begin, end), self.masses[rows[begin]]", "mass = slice(begin, end), self.masses[0]", (CLASSES,)),
    Fault("a joint decay shares the root of another alpha", "linear/multiclass.py",
          "key = fold_of[row], joint.problem.loss, joint.problem.alpha, budget, C[row].tobytes()",
          "key = fold_of[row], joint.problem.loss, budget, C[row].tobytes()", (CLASSES, ANSWERS, LAWS)),
    Fault("the runner-up's pull has the wrong sign", "linear/joint.py",
          "np.put_along_axis(pull, rivals, -slope[:, None], axis=1)", "np.put_along_axis(pull, rivals, slope[:, None], axis=1)",
          (CLASSES,)),
    # --- the fit
    Fault("the refit stops with the search", "linear/search.py", "EXTRA = 9", "EXTRA = 0", (ANSWERS,)),
    Fault("a fold trains on its test rows", "linear/splits.py",
          "return Splits(group, ~test, test)", "return Splits(group, test | ~test, test)", (SEARCH, ANSWERS)),
    Fault("an exact intercept of all rows", "linear/fitting.py",
          "best_intercept(scores, rows.labels, parts.masses(rows)[parts.fold_of])[0]",
          "best_intercept(scores, rows.labels, np.broadcast_to(rows.mass, scores.shape))[0]", (SEARCH, ANSWERS)),
    Fault("the scores of the wrong fold", "linear/race.py",
          "mine, rows = [pair for pair in pairs if pair[1] == fold], self.tests[fold]",
          "mine, rows = [pair for pair in pairs if pair[1] == fold], self.tests[0]", (SEARCH, ANSWERS)),
]  # fmt: skip


def planted(fault: Fault, folder: Path) -> Path:
    """A copy of the package with the fault in it."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "closecall" / fault.file
    text, old = path.read_text(), fault.old.replace("\\n", "\n")
    if text.count(old) != 1:
        raise SystemExit(f"{fault.name!r} fits {text.count(old)} places of {fault.file}, not one; move it along")
    path.write_text(text.replace(old, fault.new.replace("\\n", "\n")))
    return copy


def killed(fault: Fault) -> bool:
    """Whether a test fails with the fault planted."""
    with tempfile.TemporaryDirectory() as folder:
        copy = planted(fault, Path(folder))
        tests = [str(copy / name[4:]) if name.startswith("src/") else name for name in fault.tests]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--doctest-modules", *tests]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, text=True
        )
    if done.returncode not in (0, 1, 2):  # 2: the fault breaks the collection itself
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only faults whose name contains one of these")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    given = parser.parse_args()
    chosen = [f for f in FAULTS if not given.words or any(word in f.name for word in given.words)]
    survivors = []
    for fault in chosen:
        if given.list:
            print(fault.name)
            continue
        began = time.monotonic()
        dead = killed(fault)
        survivors += [] if dead else [fault.name]
        print(f"{'killed  ' if dead else 'SURVIVES'} {time.monotonic() - began:5.0f} s  {fault.name}", flush=True)
    if not given.list:
        print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults are killed")
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
