"""Planted faults: which of them does no test kill?

Each fault is one change to one file of a copy of the project; the tests named beside it should fail. What survives is
printed, and the exit code is the number of survivors:

    python -m tests.stress.planted_faults --only newton
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Fault(NamedTuple):
    """In ``file`` (under src/closecall) ``old`` becomes ``new``; ``tests`` should notice."""

    file: str
    old: str
    new: str
    tests: str


_CERTIFICATE, _PARITY, _KERNELS = "solvers/test_certificate.py", "solvers/test_parity.py", "solvers/test_kernels.py"
_OPTIMUM, _COMPILED, _MULTI = "solvers/test_optimum.py", "solvers/test_compiled.py", "linear/test_multiclass.py"
NEWTON, CONVEX, STEPS = "solvers/newton.py", "solvers/convex.py", "solvers/steps.py"
CERTIFICATE, KERNELS, BATCHED = "solvers/certificate.py", "solvers/kernels.py", "solvers/batched.py"
JOINT, WALK, DESIGN, SETTLE = "linear/multiclass.py", "linear/joint.py", "solvers/design.py", "solvers/settle.py"

FAULTS = [
    Fault(NEWTON, "return np.full(len(C), trial), line", "return np.ones(len(C)), line", _CERTIFICATE),
    Fault(NEWTON, "C = C + t[:, None] * step", "C = C + 2 * t[:, None] * step", _OPTIMUM),
    Fault(NEWTON, "flat * share * share * light), penalty", "flat * share * light), penalty", _OPTIMUM),
    Fault(NEWTON, "+ penalty * C\n        step", "\n        step", _OPTIMUM),
    Fault(NEWTON, "-fall <= 2 * enough * value", "-fall <= 2e3 * enough * value", _CERTIFICATE),
    Fault(NEWTON, "dual = np.clip(dual, 0, mass)", "dual = 2 * dual", _CERTIFICATE),
    Fault(NEWTON, "far = 0.995 * longest(moves)", "far = 1.5 * longest(moves)", _OPTIMUM),
    Fault(NEWTON, "across[:, -1] *= penalty[:, -1] > 0", "across[:, -1] *= 0", _CERTIFICATE),
    Fault(CONVEX, "inside = mass.values > 0", "inside = mass.values > -1", _PARITY),
    Fault(CONVEX, "_ARMIJO * state.trial * state.slope", "10 * state.trial * state.slope", _OPTIMUM),
    Fault(CONVEX, "losses, pull = losses * mass.values, pull * mass.values", "losses = losses * mass.values", _PARITY),
    Fault(CONVEX, "gradient + shrink", "gradient", _OPTIMUM),
    Fault(CERTIFICATE, "signed, heights = signed * scale, heights * scale", "heights = heights * 1.0", _CERTIFICATE),
    Fault(CERTIFICATE, "square / (2 * alpha)", "square / (4 * alpha)", _CERTIFICATE),
    Fault(CERTIFICATE, "lower = np.fmax(lower, known)", "lower = objective", _CERTIFICATE),
    Fault(CERTIFICATE, "square = square + signed.sum(axis=1) ** 2", "square = square * 1", _CERTIFICATE),
    Fault(CERTIFICATE, "objective + 0.5 * alpha * inner", "objective + alpha * inner", _PARITY),
    Fault(KERNELS, "keys[:, mass.outside] = np.inf\n    edges", "pass\n    edges", _KERNELS),
    Fault(KERNELS, "STEEP = 60.0", "STEEP = 1e9", _CERTIFICATE),
    Fault(KERNELS, "weights.astype(losses.dtype) - select(-losses, m, mass)", "weights", _PARITY),
    Fault(KERNELS, "weights[some] -= select(_rank", "weights[some] -= 0 * select(_rank", _KERNELS),
    Fault(KERNELS, "return np.abs(keys, out=keys), negative", "return keys, negative", _KERNELS),
    Fault(KERNELS, "pull if mass.unit and mass.outside is None else pull * mass.values", "pull", _KERNELS),
    Fault(KERNELS, "np.clip(margins, low, high, out=margins) if", "margins if", _KERNELS),
    Fault(STEPS, "self.eta[judged & (net < 0.5 * self.path)] *= 0.5", "pass", _PARITY),
    Fault(STEPS, "move += self.shrink * self.C", "pass", _PARITY),
    Fault(STEPS, "get_aggregate(name).decays for name", "False for name", _CERTIFICATE),
    Fault(STEPS, "found[same] = get_aggregate(name).carried(k[same], m[same])", "pass", _PARITY),
    Fault(STEPS, "+ np.sqrt(rank)) ** 2 / total", "+ np.sqrt(rank)) / total", _PARITY),
    Fault(BATCHED, "get_aggregate(name).is_average(k, m, total)", "k >= total and m == 0", _CERTIFICATE),
    Fault(BATCHED, "float(problem.alpha), start[index]", "1.0, start[index]", _PARITY),
    Fault(BATCHED, "return fold, problem.loss", "return 0, problem.loss", _PARITY),
    Fault(BATCHED, "used, gap, gap <= tol)", "used, gap, gap <= 1.0)", _CERTIFICATE),
    Fault(DESIGN, "intercepts - (columns @ self.mean if", "intercepts + (columns @ self.mean if", _PARITY),
    Fault(DESIGN, "penalized[len(values) - (kind == \"free\") :] = 0", "pass", _OPTIMUM),
    Fault(JOINT, "whole = aggregate.is_average(k_at(max_iter), m, joint.total)", "whole = True", _CERTIFICATE),
    Fault(WALK, "np.put_along_axis(pull, rivals, -slope[:, None], axis=1)", "pass", _MULTI),
    Fault(JOINT, "shrink = self.problem.alpha * self.design.penalized * C", "shrink = 0 * C", _MULTI),
    Fault(WALK, "curvature = 2 * step_curvature", "curvature = 0.02 * step_curvature", _MULTI),
    Fault(SETTLE, "t = min(1.0, reach / max(length, 1e-300))", "t = 8.0", _CERTIFICATE),
]  # fmt: skip


def survives(fault: Fault, copy: Path) -> bool | None:
    """Whether the tests pass with the fault; None if its old text is no longer there."""
    path = copy / "src" / "closecall" / fault.file
    text = path.read_text()
    if fault.old not in text:
        return None
    path.write_text(text.replace(fault.old, fault.new))
    try:
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{fault.tests}"]
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=900).returncode == 0
    except subprocess.TimeoutExpired:
        return False  # a run that never ends is noticed
    finally:
        path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults of files whose name contains this")
    given = parser.parse_args()
    survivors = 0
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "project"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "*.csv", "site", "results", ".*_cache"))
        for number, fault in enumerate(FAULTS):
            if given.only in fault.file:
                alive = survives(fault, copy)
                survivors += alive is not False
                word = {None: "GONE", True: "SURVIVED", False: "killed"}[alive]
                print(f"{number:3d} {word:8s} {fault.file}: {fault.old!r} -> {fault.new!r}", flush=True)
    sys.exit(survivors)


if __name__ == "__main__":
    main()
