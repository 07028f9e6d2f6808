# ruff: noqa: E501 - a fault quotes the line that it changes
"""Faults of paths of cuts (name, file, old, new), planted by :mod:`gate.planted_faults`; those in C are compiled."""

import subprocess
from pathlib import Path

TESTS = "tests/solvers/test_path.py", "tests/solvers/test_close.py"
STAGES, C, H = "solvers/stages.py", "solvers/path.c", "solvers/stages.h"
PATH, CLOSE, ROWS = "solvers/path.py", "solvers/close.py", "solvers/rows.py"
_FAULTS = [
    # --- the kernel's stages
    ("path kernel: the loss is a digit off", H, "p = p * s + 1.0 / 5;", "p = p * s + 1.0 / 4;"),
    ("path kernel: half of the slope where the margin is negative", H, "*p = v > 0 ? q : t * q;", "*p = v > 0 ? 0.5 * q : t * q;"),
    ("path kernel: the bend is not the loss's", H, "*b = t * q * q;", "*b = 30 * t * q * q;"),
    ("path kernel: the hinge's parabola is off", H, "*l = (rest - 0.5 * part) * *p;", "*l = (rest - 0.4 * part) * *p;"),
    ("path kernel: far errors are charged nothing", H, "side = u > 0 ? 1.0 : -1.0, over", "side = -1.0, over"),
    ("path kernel: no corner is rounded", H, "l = clip.e + side * (far - over * over * (0.5 * steep));", "l = clip.e + side * far;"),
    ("path kernel: ramps of half their width", H, "{e, clipped ? task->ramp * e : 1.0,", "{e, clipped ? 0.5 * task->ramp * e : 1.0,"),
    ("path kernel: nobody is inside", H, "sums.inside += dot(mass, share, count);", "sums.inside += dot(mass, wrong, count);"),
    ("path kernel: a margin of zero is right", H, "wrong[i] = x[i] >= 0 ? 1.0 : 0.0;", "wrong[i] = x[i] > 0.5 ? 1.0 : 0.0;"),
    ("path kernel: the last block is left out", H, "begin < task->rows; begin += BLOCK", "begin + BLOCK <= task->rows || begin == 0; begin += BLOCK"),
    ("path kernel: gradients without the last block", H, "for (int64_t begin = 0; begin < n; begin += BLOCK) {", "for (int64_t begin = 0; begin + BLOCK <= n || begin == 0; begin += BLOCK) {"),
    ("path kernel: one lane is not summed", H, "(lane[3] + lane[7]));", "lane[3]);"),
    ("path kernel: four products, three of them summed", H, "for (int q = 0; q < 4; q++) out[q] += total(lane[0][q])", "for (int q = 0; q < 3; q++) out[q] += total(lane[0][q])"),
    ("path kernel: no penalty in the gradient", H, "task->gradient[k] += task->penalty[k] * c[k];", ";"),
    ("path kernel: the penalty has no half", H, "return 0.5 * sum;", "return sum;"),
    ("path kernel: damping is never raised", H, "damping = damping > 0 ? 2 * damping : FIRST_DAMPING;", "damping = FIRST_DAMPING;"),
    ("path kernel: a coordinate of no size is never factored", H, "if (task->diagonal[i] == 0) sum = 1;\\n", ""),
    ("path kernel: uphill steps", H, "double sum = -task->gradient[i];", "double sum = task->gradient[i];"),
    ("path kernel: margins stay behind the coordinates", H, "task->v[i] += t * task->dv[i];", "task->v[i] += task->dv[i];"),
    ("path kernel: every step is accepted", H, "if (there <= *value + ARMIJO * t * fall) break;", "break;"),
    ("path kernel: stages end early", H, "if (!(-fall > task->tol * *value)) break;", "if (!(-fall > 1e-3 * *value)) break;"),
    ("path kernel: empty cuts are minimised", H, "while (sums.inside > 0 && left-- > 0", "while (left-- > 0"),
    ("path kernel: the first cut forgets masses", H, "pairs[2 * i + 1] = task->mass[i];", "pairs[2 * i + 1] = 1;"),
    ("path kernel: k is placed where the cut is lower", H, "settle(task, room, high->c, high->cut * pow(low->cut / high->cut, share));", "settle(task, room, high->c, low->cut);"),
    ("path kernel: no cut above the first", H, "settle(task, spot, spot->c, spot->cut / factor);\\n}", ";\\n}"),
    ("path kernel: spots are not carried over", C, "carry_over(&task, &found, &high, &other, wanted, factor, near);", ";"),
    ("path kernel: carried over under the running masses", C, "task.mass = truly;", ";"),
    ("path kernel: own masses stay for the next target", C, "task.mass = running;\\n                }", "}"),
    ("path kernel: the alpha of another task", C, "double cut = fmax(", "penalty[0] = alpha[0] * penalized[0]; double cut = fmax("),
    ("path kernel: targets skip the cut before", C, "            copy(&task, &before, &here);\\n        }", "        }"),
    ("path kernel: sharpening forgets k", C, "carry_over(&task, &found, &high, &other, k[number], factor, near[level]);", "settle(&task, &found, found.c, found.cut);"),
    ("path kernel: a ramp that was not reached counts", C, "if (!(fabs(found.inside - k[number]) <= near[level] * k[number])) break;\\n", ""),
    ("path kernel: kinks stay wide", C, "task.kink = fmin(kink, task.ramp * found.cut);", ";"),
    # --- the NumPy twin
    ("path twin: shares do not fall", STAGES, "share = np.clip((high - far) / (high - low), 0, 1)", "share = (far < high) * 1.0"),
    ("path twin: no curvature of the ramp", STAGES, "side * slopes**2 / (high - low), 0.0)", "0 * slopes, 0.0)"),
    ("path twin: Newton forgets the penalty", STAGES, "@ self.across.T + np.diag(self.penalty)", "@ self.across.T"),
    ("path twin: a coordinate of no size", STAGES, "hessian = hessian + np.diag(sizes == 0)\\n", "pass\\n"),
    ("path twin: steps are not halved", STAGES, "there = self.look(spot.c + 0.5**halvings * step, cut)", "there = self.look(spot.c + step, cut)"),
    ("path twin: stalls for ever", STAGES, "            if stalled:\\n                break\\n", ""),
    ("path twin: own masses stay", STAGES, "                    self.mass = running\\n", ""),
    ("path twin: no cut above the first", STAGES, "spot = self.settle(spot.c, spot.cut / FACTOR)\\n        return", "pass\\n        return"),
    # --- rows, tasks, starts
    ("paths: means without masses", ROWS, "self.mean = (share * X).sum(axis=0)", "self.mean = X.mean(axis=0)"),
    ("paths: constant columns are noise", ROWS, "constant = scale <= np.maximum(ROUNDING * sizes, SMALLEST)", "constant = scale <= 0"),
    ("paths: the intercept forgets the means", ROWS, "np.zeros(c.shape[:-1])) - (coef * self.mean).sum(axis=-1)", "np.zeros(c.shape[:-1]))"),
    ("paths: intercepts are never penalised", ROWS, "[float(penalize_intercept)] * fit_intercept", "[0.0] * fit_intercept"),
    ("paths: the penalty forgets the unit", ROWS, "np.append(1 / self.scale**2,", "np.append(1 / self.scale,"),
    ("paths: threads lose the tasks' order", PATH, "for each in found]) for name", "for each in found[::-1]]) for name"),
    ("paths: sharpening with the masses of the first fold", PATH, "own = np.ascontiguousarray(task.own, dtype=np.int64)", "own = np.zeros(len(task.own), dtype=np.int64)"),
    ("paths: starts differ by nothing", CLOSE, "np.uint64(start * STREAM % (1 << 64))", "np.uint64(STREAM)"),
    ("paths: the first start is random too", CLOSE, "factors = [np.ones(len(words))]", "factors = [spread_out(words)]"),
    ("paths: the end with most errors is kept", CLOSE, "order = np.lexsort((value, errors), axis=1)", "order = np.lexsort((value, -errors), axis=1)"),
    ("paths: errors are ranked in the unit of the masses", CLOSE, "np.round(part / np.maximum(part.max(axis=1, keepdims=True), 1e-300), digits)", "np.round(part, digits)"),
    ("paths: values are compared whatever the cut", CLOSE, "(spots.errors, spots.value / np.maximum(spots.cut, 1e-300))", "(spots.errors, spots.value)"),
    ("paths: the k of a sample is that of all", CLOSE, "_alike(alpha * shares[fold_of], fold_of, k * shares[fold_of])", "_alike(alpha * shares[fold_of], fold_of, np.minimum(k, masses.sum()))"),
    ("paths: a sample's coordinates are those of all", CLOSE, "c = whole.to_coordinates(*rows.to_parameters(c))", "pass"),
    ("paths: samples by position", CLOSE, "some = np.sort(np.argsort(chance, kind=\"stable\")[:SAMPLED])", "some = np.arange(SAMPLED)"),
    ("paths: folds train on the masses of the first", CLOSE, "own = np.repeat([n_starts * folds.index(fold) for fold, _, _ in paths], n_starts)", "own = np.repeat([0 for fold, _, _ in paths], n_starts)"),
    ("paths: the smallest k first", CLOSE, "members = sorted(targets.items(), reverse=True)", "members = sorted(targets.items())"),
    ("paths: many starts on many rows", CLOSE, "return int(np.clip(least, LEAST_STARTS, MOST_STARTS))", "return MOST_STARTS"),
    # --- certificates
    ("paths: certified with a wide ramp", CLOSE, "last = SAFE * 2 * max(tol, 1e-12)", "last = 400 * SAFE * 2 * max(tol, 1e-12)"),
    ("paths: any ramp certifies", CLOSE, "return found, looks, gap if ramps[-1] * found.cut[0] <= 2 * tol * mean else np.inf", "return found, looks, gap / 1e3"),
    ("paths: the gap forgets the penalty", CLOSE, "losses[used]).sum() + 0.5 * alpha", "losses[used]).sum() + 0.0 * alpha"),
    ("paths: an intercept is free in the bound", CLOSE, '"penalized" if self.penalize_intercept else "free"', '"free" if self.penalize_intercept else "free"'),
    ("paths: certified without alpha", CLOSE, "if not (alpha > 0 and np.isfinite(cut)):", "if not np.isfinite(cut):"),
    ("paths: ties take nothing of what is left", CLOSE, "np.clip(mass * share + between * (missing / room), 0, mass)", "mass * share"),
    ("paths: nothing inside ends in an error", CLOSE, "        if not used.size:\\n            return loss.threshold, 1.0\\n", ""),
    ("paths: averages are served", CLOSE, "return few and not get_aggregate(problem.aggregate).is_average(*counts(problem, mass), mass)", "return few"),
    ("paths: sparse rows are served", CLOSE, "is not pull_close or sparse.issparse(X):", "is not pull_close:"),
]  # fmt: skip
PATH_FAULTS = [(*fault, TESTS) for fault in _FAULTS]


def compile_path(changed: Path) -> None:
    """Put the kernel's library beside a source of it that was changed; without clones for every processor."""
    if changed.suffix not in (".c", ".h"):
        return
    kernel = changed.with_name("path.c")
    flags = ["-O1", "-D__clang__", "-fPIC", "-shared", "-o", str(kernel.with_name("_path.so"))]
    subprocess.run(["cc", *flags, str(kernel), "-lm"], check=True)
