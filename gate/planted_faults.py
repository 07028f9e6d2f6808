# ruff: noqa: E501 - a fault quotes the line that it changes
"""Plant faults in the source, one at a time, and see which of them no test kills.

    python -m gate.planted_faults                 every fault, each against the tests named with it
    python -m gate.planted_faults leaked weight   only faults whose name contains one of the words
    python -m gate.planted_faults --list          names only
    python -m gate.planted_faults --fit           only whether each still fits the source

The package is copied, a line is changed there, and the tests run against the copy. A fault that no longer fits is an error.
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

from .planted_faults_path import PATH_FAULTS, compile_path

ROOT = Path(__file__).parents[1]
ANSWERS, SEARCH = "tests/linear/test_answers.py", "tests/linear/test_search.py"
LAWS, CLASSES = "tests/linear/test_laws.py", "tests/linear/test_multiclass.py"
PARAMETERS, ESTIMATORS = "tests/linear/test_parameters.py", "tests/linear/test_estimators.py"
PAIRED, LEVEL = "tests/test_paired.py", "tests/model_selection/test_level.py"
WARNINGS, PATHS = "tests/linear/test_warnings.py", "tests/linear/test_every_path.py"
SETTLE, HARD = "tests/solvers/test_settle.py", "tests/solvers/test_hard.py"
SETTLED, PASSES = "tests/cluster/test_settled.py", "tests/cluster/test_passes.py"
FOLDS, PARTS = "tests/cluster/test_search.py", "tests/cluster/test_parts.py"


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
          "own = [masses[fold] for fold in pilots.fold[some]]",
          "own = [masses[0] for fold in pilots.fold[some]]", (ANSWERS, "tests/solvers/test_parity.py")),
    # --- who chooses what it is asked about
    Fault("the guard asks the rows that chose", "paired.py",
          "earlier = np.cumsum(sums, axis=1) - sums", "earlier = np.cumsum(sums, axis=1)", (PAIRED, ANSWERS)),
    Fault("folds that overlap choose for each other", "model_selection/contest.py",
          "not np.isin(test, other).any()", "test is not other", (LEVEL,)),
    Fault("the guard is half as strict", "paired.py",
          "return guard * factor * self.standard_error", "return 0.5 * guard * factor * self.standard_error", (PAIRED, SEARCH)),
    Fault("the normal quantile for few groups", "paired.py",
          "factor = -float(special.stdtrit(self.degrees, special.ndtr(-at))) / at", "factor = 1.0", (PAIRED,)),
    Fault("the standard error forgets its root", "paired.py",
          "float(np.sqrt((count - 1) / count * squares))", "float((count - 1) / count * squares)", (PAIRED,)),
    Fault("errors over rows where groups are given", "paired.py",
          "    if groups is not None:\n        return Units(", "    if groups is None:\n        return Units(", (PAIRED, LEVEL)),
    Fault("copies on both sides of a fold", "linear/splits.py",
          "np.bincount(member).max() > max(2, len(labels) / (3 * folds))", "True", (LEVEL,)),
    Fault("ties go to the smaller k", "linear/guard.py",
          "np.lexsort((-alphas, -masses, -np.round(means, 12)))", "np.lexsort((-alphas, masses, -np.round(means, 12)))",
          (SEARCH, "src/closecall/linear/guard.py")),
    # --- weights
    Fault("class weight in scoring", "linear/training.py",
          "return Training(X, codes, mass, classes, row_hashes(X, NEGLIGIBLE * column_sizes(X)), rows, weight)",
          "return Training(X, codes, mass, classes, row_hashes(X, NEGLIGIBLE * column_sizes(X)), rows)", (ANSWERS,)),
    Fault("class weight in calibration", "linear/calibration.py",
          "training.codes[seen], training.weight[seen])",
          "training.codes[seen], training.mass[seen])", (ANSWERS,)),
    Fault("dropped class weight", "linear/training.py", "weight, mass = mass, mass * factors[codes]",
          "weight, mass = mass, mass * 1.0", (PARAMETERS, ANSWERS)),
    Fault("dropped weight in the accuracy of the folds", "linear/race.py",
          "right @ (self.training.weight[rows] / self.training.weight[rows].sum())", "right.mean(axis=1)", (LAWS, ANSWERS)),
    Fault("dropped weight in the guard's gain", "linear/race.py",
          "return paired(gains, self.training.weight, self.units, spread)",
          "return paired(gains, np.ones(len(gains)), self.units, spread)", (LAWS, ANSWERS)),
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
          'multiclass="softmax" if many else None)', "multiclass=form)", (ANSWERS,)),
    Fault("the baseline has the challengers' loss", "linear/search.py",
          'Setting("logistic", "average", None, alpha, multiclass="softmax" if many else None)',
          'Setting(losses[0], "average", None, alpha, multiclass="softmax" if many else None)', (ANSWERS, SEARCH)),
    Fault("the refit of many classes forgets the form", "linear/search.py",
          "chosen.multiclass or self.multiclass", "self.multiclass", (ANSWERS,)),
    Fault("a joint step with the wrong fold's mass", "linear/joint.py",
          "mass = slice(begin, end), self.masses[rows[begin]]", "mass = slice(begin, end), self.masses[0]", (CLASSES,)),
    Fault("a joint decay shares the root of another alpha", "linear/multiclass.py",
          "key = fold_of[row], joint.problem.loss, joint.problem.alpha, budget, C[row].tobytes()",
          "key = fold_of[row], joint.problem.loss, budget, C[row].tobytes()", (CLASSES, ANSWERS, LAWS)),
    Fault("the runner-up's pull has the wrong sign", "linear/joint.py",
          "np.multiply(rivals, -slope[:, None])", "np.multiply(rivals, slope[:, None])",
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
    # --- the solvers
    Fault("doubled step: all accept a halved one", "solvers/newton.py",
          "return np.full(len(C), trial), line", "return np.ones(len(C)), line", ("tests/solvers/test_certificate.py",)),
    Fault("doubled step of Newton", "solvers/newton.py",
          "C = C + t[:, None] * step", "C = C + 2 * t[:, None] * step", ("tests/solvers/test_optimum.py",)),
    Fault("Newton's curvature is not the loss's", "solvers/newton.py",
          "flat * share * share, least", "flat * share, least", ("tests/solvers/test_optimum.py",)),
    Fault("Newton has no least curvature", "solvers/newton.py",
          "_FLATTEST, _DAMPED, _SHORT = 1e-12, 1e-4", "_FLATTEST, _DAMPED, _SHORT = 0.0, 0.0", (HARD,)),
    Fault("Newton is not damped after a short step", "solvers/newton.py",
          "_FLATTEST, _DAMPED, _SHORT = 1e-12, 1e-4", "_FLATTEST, _DAMPED, _SHORT = 1e-12, 1e-12", (HARD,)),
    Fault("Newton forgets the penalty", "solvers/newton.py",
          "+ penalty * C\\n        step", "\\n        step", ("tests/solvers/test_optimum.py",)),
    Fault("Newton stops early", "solvers/newton.py",
          "-fall <= 2 * enough * value", "-fall <= 2e3 * enough * value", ("tests/solvers/test_certificate.py",)),
    Fault("a dual point outside its box", "solvers/newton.py",
          "dual = np.clip(dual, 0, mass)", "dual = 2 * dual", ("tests/solvers/test_certificate.py",)),
    Fault("the interior point leaves the inside", "solvers/newton.py",
          "far = 0.995 * longest(moves)", "far = 1.5 * longest(moves)", ("tests/solvers/test_optimum.py",)),
    Fault("a bound forgets the intercept's penalty", "solvers/newton.py",
          "across[:, -1] *= penalty[:, -1] > 0", "across[:, -1] *= 0", ("tests/solvers/test_certificate.py",)),
    Fault("a bound of float32 does not give way", "solvers/convex.py",
          "snapshots, bounds * (1 - design.rounding)", "snapshots, bounds", ("tests/solvers/test_certificate.py",)),
    Fault("a fold's left-out rows are trained on", "solvers/convex.py",
          "mass = np.stack([each.values for each in masses])", "mass = np.stack([np.ones_like(each.values) for each in masses])",
          ("tests/solvers/test_optimum.py",)),
    Fault("a fold's labels show in the digits of another", "solvers/newton.py",
          "if not self.folds or len(part) == len(self.final):", "if True:", ("tests/solvers/test_parity.py",)),
    Fault("L-BFGS is scaled by what bounds the Gram matrix", "solvers/convex.py",
          "min(curvature, 4.0) / design.raised * design.spectrum", "min(curvature, 4.0) * design.spectrum",
          ("tests/solvers/test_optimum.py",)),
    Fault("a one-sided choice is blamed where the intercept is penalised", "linear/fitting.py",
          "or not options.fit_intercept or options.penalize_intercept:", "or not options.fit_intercept:", (ANSWERS,)),
    Fault("the gap of many rows is too small", "solvers/stationary.py",
          "gap = (value - bound) / max(value,", "gap = 0.9 * (value - bound) / max(value,", ("tests/solvers/test_large.py",)),
    Fault("L-BFGS accepts no step", "solvers/convex.py",
          "_ARMIJO * state.trial * state.slope", "10 * state.trial * state.slope", ("tests/solvers/test_optimum.py",)),
    Fault("dropped weight in a pull of L-BFGS", "solvers/convex.py",
          "design.gradient(pull * weights)", "design.gradient(pull)", ("tests/solvers/test_parity.py",)),
    Fault("L-BFGS forgets the penalty", "solvers/convex.py",
          "gradient + shrink", "gradient", ("tests/solvers/test_optimum.py",)),
    Fault("a bound without the intercept's repair", "solvers/certificate.py",
          "signed, heights = signed * scale, heights * scale", "heights = heights * 1.0", ("tests/solvers/test_certificate.py",)),
    Fault("a bound with half the penalty", "solvers/certificate.py",
          "square / (2 * alpha)", "square / (4 * alpha)", ("tests/solvers/test_certificate.py",)),
    Fault("a bound that is the objective", "solvers/certificate.py",
          "lower, proven = np.maximum(known[0], 0.0), known[1]", "lower, proven = objective.copy(), known[1]", ("tests/solvers/test_certificate.py",)),
    Fault("a bound forgets a penalised intercept", "solvers/certificate.py",
          "square = square + signed.sum(axis=1) ** 2", "square = square * 1", ("tests/solvers/test_certificate.py",)),
    Fault("an objective with twice the penalty", "solvers/certificate.py",
          "objective + 0.5 * alpha * inner", "objective + alpha * inner", ("tests/solvers/test_parity.py",)),
    Fault("left-out rows are selected", "solvers/kernels.py",
          "keys[:, mass.outside] = np.inf\\n    edges", "pass\\n    edges", ("tests/solvers/test_kernels.py",)),
    Fault("far margins tie", "solvers/kernels.py",
          "STEEP = 60.0", "STEEP = 1e9", ("tests/solvers/test_certificate.py",)),
    Fault("ignored m in the weights", "solvers/kernels.py",
          "weights.astype(losses.dtype) - select(-losses, m, mass)", "weights", ("tests/solvers/test_parity.py",)),
    Fault("ignored m in the pulls", "solvers/kernels.py",
          "weights[some] -= select(_rank", "weights[some] -= 0 * select(_rank", ("tests/solvers/test_kernels.py",)),
    Fault("closeness without its absolute value", "solvers/kernels.py",
          "return np.abs(keys, out=keys), negative", "return keys, negative", ("tests/solvers/test_kernels.py",)),
    Fault("dropped weight in the average's pull", "solvers/kernels.py",
          "pull if mass.unit and mass.outside is None else pull * mass.values", "pull", ("tests/solvers/test_kernels.py",)),
    Fault("steps that chatter are not halved", "solvers/steps.py",
          "self.eta[judged & (net < 0.5 * self.path)] *= 0.5", "pass", ("tests/solvers/test_parity.py",)),
    Fault("steps forget the penalty", "solvers/steps.py",
          "move += self.shrink * self.C", "pass", ("tests/solvers/test_parity.py",)),
    Fault("nothing decays", "solvers/steps.py",
          "get_aggregate(name).decays for name", "False for name", ("tests/solvers/test_certificate.py",)),
    Fault("an aggregate's carried mass is k - m", "solvers/steps.py",
          "found[same] = aggregate.carried(k[same], m[same])", "found[same] = np.maximum(k - m, 0.0)[same]", ("tests/solvers/test_parity.py",)),
    Fault("the majoriser is too small", "solvers/steps.py",
          "+ np.sqrt(rank)) ** 2 / total", "+ np.sqrt(rank)) / total", ("tests/solvers/test_parity.py",)),
    Fault("steep steps are not held", "solvers/steps.py",
          "move[self.steep] *= self._hold(move[self.steep], self.C[self.steep])", "pass", (HARD,)),
    Fault("joint steep steps are not held", "linear/joint.py",
          "if steep:", "if False:", (CLASSES,)),
    Fault("windows are judged a step late", "solvers/steps.py",
          "WINDOW - 1 - self.count[judged]", "WINDOW - self.count[judged]", ("tests/solvers/test_parity.py",)),
    Fault("the first window of a decay opens late", "solvers/steps.py",
          "self.last - 1 - self.step[~judged]", "self.last - self.step[~judged]", ("tests/solvers/test_parity.py",)),
    Fault("a run takes a step too many", "solvers/steps.py",
          "[limit - self.step.max()]", "[limit + 1 - self.step.max()]", ("tests/solvers/test_parity.py",)),
    Fault("the compiled kernel keeps the first k", "solvers/compiled.py",
          "self.k[:] = k", "self.k[:] = k if not self.k.all() else self.k", ("tests/solvers/test_parity.py",)),
    Fault("a failed answer is not compared with the average", "solvers/finish.py",
          "places = [end, average,", "places = [end, end,", (HARD,)),
    Fault("a failed answer is not compared with zero", "solvers/finish.py",
          "[np.zeros_like(end)] if convex", "[end] if convex", (HARD,)),
    Fault("what takes no k is an average", "solvers/sweep.py",
          "get_aggregate(name).is_average(k, m, total)", "k >= total and m == 0", ("tests/solvers/test_certificate.py",)),
    Fault("alphas share a row", "solvers/sweep.py",
          "float(problem.alpha), start[index]", "1.0, start[index]", ("tests/solvers/test_parity.py",)),
    Fault("folds share a row", "solvers/sweep.py",
          "return fold, problem.loss", "return 0, problem.loss", ("tests/solvers/test_parity.py",)),
    Fault("everything has converged", "solvers/batched.py",
          "objective, errors, used, gap, gap <= tol)", "objective, errors, used, gap, gap <= 1.0)", ("tests/solvers/test_certificate.py",)),
    Fault("stale margin: the mean is added", "solvers/design.py",
          "intercepts - (columns @ self.mean if", "intercepts + (columns @ self.mean if", ("tests/solvers/test_parity.py",)),
    Fault("a free intercept is penalised", "solvers/design.py",
          'penalized[len(values) - (kind == "free") :] = 0', "pass", ("tests/solvers/test_optimum.py",)),
    Fault("joint problems are averages", "linear/multiclass.py",
          "whole = aggregate.is_average(k_at(max_iter), m, joint.total)", "whole = True", ("tests/solvers/test_certificate.py",)),
    Fault("the runner-up does not pull", "linear/joint.py",
          "np.multiply(rivals, -slope[:, None])", "np.multiply(rivals, 0 * slope[:, None])", ("tests/linear/test_multiclass.py",)),
    Fault("joint problems forget the penalty", "linear/multiclass.py",
          "shrink = self.problem.alpha * self.design.penalized * C", "shrink = 0 * C", ("tests/linear/test_multiclass.py",)),
    Fault("a hundredfold joint step", "linear/joint.py",
          "curvature = 2 * step_curvature", "curvature = 0.02 * step_curvature", ("tests/linear/test_multiclass.py",)),
    # --- settling
    Fault("a ramp that does not sum to k", "solvers/soft.py",
          "weights[near] = share * fraction", "weights[near] = share * (fraction > 0.5)", (SETTLE,)),
    Fault("the prediction keeps no shares", "solvers/soft.py",
          "change = offset * (1 / width - 1 / old)", "change = 0 * offset", (SETTLE,)),
    Fault("a prediction of the wrong sign", "solvers/soft.py",
          "return self.c - solve_or_nan(whole, self.gradient), held", "return self.c + solve_or_nan(whole, self.gradient), held", (SETTLE,)),
    Fault("settling without the curvature of the ramp", "solvers/soft.py",
          "whole += ramp.sign / self.width * apart", "pass", (SETTLE,)),
    Fault("settling accepts more errors", "solvers/settle.py", "WORSE = 0.01", "WORSE = 1.0", (SETTLE,)),
    Fault("settling takes any step", "solvers/settle.py", "FARTHEST = 0.4, 4, 1.0", "FARTHEST = 0.4, 4, 1e9", (SETTLE,)),
    Fault("the last width is that of the start", "solvers/settle.py",
          "return 2 * self.tol * max(spot.value / max(float(spot.weights.sum()), 1e-300), SMALLEST)",
          "return self.tol * self.unit", (SETTLE,)),
    Fault("settling ends higher than the run", "solvers/settle.py",
          "self.highest = (1 + WORSE) * spot.value if", "self.highest = np.inf if", (SETTLE,)),
    Fault("settled at any width", "solvers/settle.py",
          "return spot if spot is not None and spot.width <= self._last(spot) else None", "return spot", (SETTLE,)),
    Fault("settled without a certificate", "solvers/settle.py",
          "return spot.width > self._last(spot) or self._certified(spot, factor)", "return True", (SETTLE,)),
    Fault("a held gap without the intercept's repair", "solvers/finish.py",
          "heights, pull = heights * factors, pull * factors", "heights = heights * 1.0", (SETTLE,)),
    Fault("a held gap with twice the penalty", "solvers/finish.py",
          "(across**2 / 2) @ (1 / surface.penalty[penalized])", "(across**2 / 4) @ (1 / surface.penalty[penalized])", (SETTLE,)),
    Fault("a convex gap by the shares' own value", "solvers/finish.py",
          "choice, threshold) if convex else weights", "choice, threshold) if False else weights", (SETTLE,)),
    Fault("a gap is a share of the weighted losses", "solvers/certificate.py",
          "scale = np.maximum(objective + above,", "scale = np.maximum(objective,", ("tests/solvers/test_certificate.py",)),
    Fault("multipliers stay as they began", "solvers/convex.py",
          "state.shares[rows], state.bound[rows] = slopes,", "_, state.bound[rows] = slopes,", ("tests/solvers/test_certificate.py",)),
    Fault("the rivals of several classes do not share", "linear/settling.py",
          "return width / (2 * np.log(max(self.classes - 1, 2)))", "return 1e-9 * width", (SETTLE, WARNINGS)),
    Fault("a joint gap without the intercepts' repair", "linear/settling.py",
          "heights, across = heights * factors, across * factors[:, None]", "heights = heights * 1.0", (PATHS, WARNINGS)),
    Fault("settling counts mass, not rows", "solvers/finish.py",
          "*shape, carried / surface.choice.total * len(surface.rows))", "*shape, carried)", (WARNINGS,)),
    Fault("joint settling counts mass, not rows", "linear/settling.py",
          "float(weights.sum()) / surface.choice.total * len(weights))", "float(weights.sum()))", (WARNINGS,)),
    Fault("nothing settles", "linear/fitting.py",
          "settle=options.settle or options.max_iter, shuffled=True, judged=False, **data", "**data", (WARNINGS,)),
    Fault("silent: no warning", "linear/fitting.py",
          "if bool(models.converged.all()):", "if True:", (WARNINGS,)),
    # --- partitions
    Fault("partitions: the last is dropped", "cluster/passes.py",
          "return [found[number] for number in sorted(found)]", "return [found[number] for number in sorted(found)[:-1] or found]",
          (SETTLED, PASSES)),
    Fault("partitions: a doubled weight", "cluster/settled.py",
          "near.mass.append(mass[kept])", "near.mass.append(2 * mass[kept])", (SETTLED,)),
    Fault("partitions: weights count once more", "cluster/blocks.py",
          "return mass if self.factors is None else", "return mass * mass if self.factors is None else", (SETTLED, PASSES)),
    Fault("partitions: a certificate of the rows that are kept, not of all", "solvers/stationary.py",
          "if gap <= goal.tol and sums.full:", "if gap <= goal.tol:", (SETTLED, "tests/solvers/test_large.py", PARTS)),
    Fault("partitions: the k-th place is one off", "cluster/window.py",
          "left, there = selection.k - sums.mass,", "left, there = selection.k + 1 - sums.mass,", (PASSES,)),
    Fault("partitions: the k of a search is one off", "cluster/settled.py",
          "Goal(loss, asked.selection.k, asked.penalty", "Goal(loss, asked.selection.k + 1, asked.penalty", (SETTLED,)),
    Fault("partitions: a repeat counts twice", "cluster/passes.py",
          "            found[number] = result", "            found[len(found)] = result", (PASSES, SETTLED, PARTS)),
    Fault("partitions: what was read before a process died is read again", "cluster/parquet_source.py",
          "self._pooled(work, list(left.values()))", "self._pooled(work, self.pieces)", (PASSES, PARTS)),
    Fault("partitions: one without rows ends the draw", "cluster/passes.py",
          "self.run(\"sample\", partial(draw, frame, shares, first, list(labels)))",
          "[each for each in self.run(\"sample\", partial(draw, frame, shares, first, list(labels))) if len(each.block)][:3]",
          (PASSES, SETTLED, PARTS)),
    Fault("partitions: only the last piece of one is tallied", "cluster/settled.py",
          "near.sums = near.sums + sums", "near.sums = sums", (SETTLED, PARTS)),
    Fault("partitions: only the last piece of one is summed", "cluster/looks.py",
          "sums.across += (sides * weighted) @ rows", "sums.across[:] = (sides * weighted) @ rows", (PASSES, SETTLED, PARTS)),
    Fault("partitions: only the last piece has curvature", "cluster/looks.py",
          "sums.bend += rows.T @ rows", "sums.bend[:] = rows.T @ rows", (PASSES, SETTLED, PARTS)),
    Fault("partitions: a tie at the edge is summed and gathered", "cluster/looks.py",
          "np.flatnonzero(keys < look.low)", "np.flatnonzero(keys <= look.low)", (PASSES, PARTS)),
    Fault("partitions: a tie at the edge is left out", "cluster/looks.py",
          "(keys >= look.low) & (keys <= look.high)", "(keys > look.low) & (keys <= look.high)", (PASSES, PARTS)),
    Fault("partitions: a tie at the far edge is left out", "cluster/looks.py",
          "(keys >= look.low) & (keys <= look.high)", "(keys >= look.low) & (keys < look.high)", (PASSES, PARTS)),
    Fault("partitions: errors are counted without their weights", "cluster/settled.py",
          "sums.errors = float(mass[margins <= 0].sum())", "sums.errors = float((margins <= 0).sum())", (SETTLED, PARTS)),
    Fault("partitions: a survey without weights", "cluster/blocks.py",
          "squares += block.mass[rows] @ (X * X)", "squares += (X * X).sum(axis=0)", (PASSES, SETTLED, PARTS)),
    Fault("partitions: a Gram matrix without weights", "cluster/draw.py",
          "rows *= np.sqrt(mass)[:, None]", "pass", (PASSES, SETTLED, PARTS)),
    Fault("partitions: rows of a sample stand for themselves", "cluster/draw.py",
          "block.mass[chosen] / limits[chosen])", "block.mass[chosen])", (PASSES, SETTLED, PARTS)),
    Fault("partitions: gathered rows of a share stand for themselves", "cluster/looks.py",
          "mass[explicit] / look.share", "mass[explicit]", (PASSES, PARTS)),
    Fault("partitions: the rows of a fold, not the others", "cluster/looks.py",
          "np.flatnonzero(fold != look.left_out.fold)", "np.flatnonzero(fold == look.left_out.fold)", (FOLDS,)),
    Fault("partitions: the mass of a fold counts in its k", "cluster/folds.py",
          "left = self.counts.sum(axis=0) - self.counts[fold]", "left = self.counts.sum(axis=0)", (FOLDS,)),
    Fault("partitions: a stale hint of the k-th place", "cluster/walk.py",
          "self.bias += window.edge - predicted", "pass", (PASSES, PARTS)),
    Fault("partitions: stale rows serve however far the coordinates moved", "solvers/stationary.py",
          "return far <= spare", "return True", (SETTLED, "tests/solvers/test_large.py", PARTS)),
    Fault("partitions: kept rows are float32", "cluster/parquet_source.py",
          "np.ascontiguousarray(block.X)), strict", "np.ascontiguousarray(block.X, np.float32)), strict", (PASSES, PARTS)),
    Fault("partitions: kept weights are whole", "cluster/parquet_source.py",
          "(labels, block.mass, np.ascontig", "(labels, block.mass.astype(int), np.ascontig", (PASSES, PARTS)),
    Fault("partitions: scaled columns are those that were kept before", "cluster/parquet_source.py",
          'tuple(features), ""  # what was kept', 'tuple(features), self.folder  # what was kept', (PASSES, PARTS)),
    Fault("partitions: answers reach the wrong problem", "cluster/fit.py",
          "zip(asking, answers, strict=True)", "zip(asking, answers[::-1], strict=True)", (PASSES, FOLDS)),
    *(Fault(*fault) for fault in PATH_FAULTS),
]  # fmt: skip


def places(fault: Fault) -> int:
    """How many places of the source the fault fits; one, or it has to be moved along."""
    return (ROOT / "src" / "closecall" / fault.file).read_text().count(fault.old.replace("\\n", "\n"))


def planted(fault: Fault, folder: Path) -> Path:
    """A copy of the package with the fault in it."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "closecall" / fault.file
    text, old = path.read_text(), fault.old.replace("\\n", "\n")
    if text.count(old) != 1:
        raise SystemExit(f"{fault.name!r} fits {text.count(old)} places of {fault.file}, not one; move it along")
    path.write_text(text.replace(old, fault.new.replace("\\n", "\n")))
    compile_path(path)
    return copy


def killed(fault: Fault) -> bool:
    """Whether a test fails with the fault planted."""
    with tempfile.TemporaryDirectory() as folder:
        copy = planted(fault, Path(folder))
        tests = [str(copy / name[4:]) if name.startswith("src/") else name for name in fault.tests]
        options = ["-q", "-x", "-p", "no:cacheprovider", "--doctest-modules", "--hypothesis-profile=first_failure"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        known = os.environ | {"PYTHONPATH": str(copy)}
        done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2):  # 2: the fault breaks the collection itself
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only faults whose name contains one of these")
    parser.add_argument("--fit", action="store_true", help="only check that each fault fits one place")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    given = parser.parse_args()
    chosen = [f for f in FAULTS if not given.words or any(word in f.name for word in given.words)]
    survivors: list[str] = []
    for fault in chosen:
        if given.list or given.fit:
            print(f"{fault.name}: {places(fault)}" if given.fit else fault.name)
            continue
        began = time.monotonic()
        dead = killed(fault)
        survivors += [] if dead else [fault.name]
        print(f"{'killed  ' if dead else 'SURVIVES'} {time.monotonic() - began:5.0f} s  {fault.name}", flush=True)
    if not (given.list or given.fit):
        print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults are killed")
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
