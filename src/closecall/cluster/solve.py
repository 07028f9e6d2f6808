"""Solve problems on partitioned data: in-memory solvers request sums over all rows, and problems share passes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
from scipy.optimize import minimize

from .._names import Array
from ..linear.fitting import Options, fit_models
from ..linear.training import NEGLIGIBLE, Training, column_sizes, row_hashes
from ..losses import get_loss
from ..objective import Problem
from ..solvers import many
from ..solvers.blocked import ManyRows, margins_of
from ..solvers.certificate import NOTHING
from ..solvers.cuts import ALL, LossCut, LossWindow, edge_at
from ..solvers.engine import Engine
from ..solvers.flow import Flow
from ..solvers.many import WORSE, Sample, start
from ..solvers.narrow import gap_of, narrow
from ..solvers.newton import LARGEST_RANK
from ..solvers.rows import TangentSums
from ..solvers.stages import KINK, Spot, Walk
from .passes import Block, Frame, Passes, fold_of


@dataclass(frozen=True)
class Request:
    """A request to all partitions: a method of :class:`closecall.solvers.blocked.ManyRows` and its arguments.

    ``label`` is the class that counts as +1. ``fold`` is None or contains the fold that is left out and the number of
    folds.
    """

    label: Any
    loss: str
    fold: tuple[int, int] | None
    method: str
    given: tuple[Any, ...]


def answer(frame: Frame, requests: Sequence[Request], block: Block) -> list[Any]:
    """Return one partition's answers to the requests."""
    folds = max((request.fold[1] for request in requests if request.fold is not None), default=0)
    group = fold_of(row_hashes(block.X), folds) if folds else np.empty(0)
    masses, X, found = frame.masses(block.y, block.mass), np.ascontiguousarray(block.X), []  # rows are selected from it
    with np.errstate(all="ignore"):  # results that are not finite raise an error later
        for each in requests:
            mass = masses if each.fold is None else np.where(group == each.fold[0], 0.0, masses)
            rows = ManyRows(X, np.where(block.y == each.label, 1.0, -1.0), mass, frame, each.loss)
            found.append(getattr(rows, each.method)(*each.given))
    return found


def together(passes: Passes, frame: Frame, works: Sequence[Callable[[Callable[[Request], Any]], Any]]) -> list[Any]:
    """Run tasks in threads and return their results; a pass starts when every unfinished task has made a request.

    Each task receives a function that sends a request to all partitions and returns the combined answer.
    """
    asked = queue.SimpleQueue[Any]()
    for number, work in enumerate(works):
        threading.Thread(target=_work, args=(asked, number, work), daemon=True).start()
    ended: dict[int, Any] = {}
    waiting: dict[int, tuple[Request, Future[Any]]] = {}
    while len(ended) < len(works):
        number, request, result = asked.get()
        if request is None:
            ended[number] = result
        else:
            waiting[number] = request, result
        if waiting and len(waiting) + len(ended) == len(works):
            requests, replies = zip(*(waiting[number] for number in sorted(waiting)), strict=True)
            waiting.clear()
            try:
                found = passes.run("sums", partial(answer, frame, requests))
            except BaseException:
                for reply in replies:
                    reply.set_exception(RuntimeError("the pass failed"))
                raise
            for reply, parts in zip(replies, zip(*found, strict=True), strict=True):
                reply.set_result(reduce(add, parts))
    for each in ended.values():
        if isinstance(each, BaseException):
            raise each
    return [ended[number] for number in range(len(works))]


def _work(asked: queue.SimpleQueue[Any], number: int, work: Callable[..., Any]) -> None:
    def ask(request: Request) -> Any:
        reply = Future[Any]()
        asked.put((number, request, reply))
        return reply.result()

    try:
        with np.errstate(all="ignore"):
            result = work(ask)
    except BaseException as error:  # the thread that runs the passes raises it
        result = error
    asked.put((number, None, result))


#: Methods of ManyRows whose answers can be added up.
SUMS = ("look", "flow", "gather", "keys", "tangents")


class RemoteRows:
    """The rows of all partitions, with the methods of :class:`closecall.solvers.blocked.ManyRows`."""

    def __init__(self, ask: Callable[[Request], Any], standard: Frame, request: Request) -> None:
        self.standard, self.name = standard, request.loss
        self.threshold, self.edge = get_loss(request.loss).threshold, -np.inf
        self._ask, self._request = ask, request

    def __getattr__(self, method: str) -> Any:
        """Return a function that sums the method's results over all rows."""
        if method not in SUMS:
            raise AttributeError(method)
        return lambda *given: self._ask(replace(self._request, method=method, given=given))

    def bound(
        self, c: Array, window: LossWindow, width: float, most: float, penalty: Array
    ) -> tuple[float, float, float]:
        """Return the same result as :meth:`closecall.solvers.rows.LossRows.bound`."""
        sums, self.edge = self.tangents(c, window, width), window.low
        factor = min(1.0, most / max(sums.held, 1e-300))
        return factor * sums.value, factor * sums.held, sums.bound(penalty, factor)

    def largest(self, c: Array, k: float) -> float:
        """Bound the sum of the largest losses, whose total mass is k, from above, using losses above the last edge."""
        if not np.isfinite(self.edge):
            return float(self.tangents(c, LossWindow(), KINK).value)
        found = self.keys(c, None, -self.edge, -self.edge)
        return float(k * self.edge + found.value - self.edge * found.below)


@dataclass(frozen=True)
class Ended:
    """The solution of a problem: its coordinates and its gap."""

    c: Array
    gap: float


@dataclass(frozen=True)
class Task:
    """A problem on ``rows`` rows with total mass ``total``: all rows, or all rows outside one fold.

    The request contains the label, the loss and the fold. ``penalty`` has shape (coordinates,). At most ``room`` rows
    are gathered. ``intercept`` states whether there is an intercept and whether it is penalised.
    """

    request: Request
    problem: Problem
    cut: LossCut
    total: float
    rows: int
    penalty: Array
    tol: float
    room: float
    stage: int
    intercept: tuple[bool, bool]

    def _here(self, frame: Frame, sample: Sample) -> Ended:
        """Fit in memory."""
        hashes = row_hashes(sample.X, NEGLIGIBLE * column_sizes(sample.X))
        codes, rows = (sample.signs > 0).astype(int), np.arange(len(sample.signs))
        training = Training(sample.X, codes, sample.mass, np.arange(2), hashes, rows)
        found = fit_models(training, [self.problem], Options(self.stage, self.tol, *self.intercept, "ovr"))
        return Ended(frame.to_coordinates(found.coef[0, 0], float(found.intercept[0, 0])), float(found.gap[0, 0]))

    def path(self, few: Sample, problem: Problem) -> tuple[Array, float]:
        """Follow the path of a problem on a sample, and return its final coefficients and intercept."""
        engine = Engine(few.X, few.signs, few.mass[None], few.words, *self.intercept, 1, self.stage)
        ends = engine.paths([problem], np.zeros(1, dtype=int), None)
        return ends.coef[0], float(ends.intercept[0])

    def solve(self, frame: Frame, sample: Sample, whole: bool, ask: Callable[[Request], Any]) -> Ended:
        """Solve the problem, starting from a sample; ``whole`` states whether the sample contains all rows."""
        rows = RemoteRows(ask, frame, self.request)
        if self.cut.kind == ALL and not get_loss(self.problem.loss).kinks:
            return average(rows, self.penalty, self._average(frame, sample))
        if whole:
            return self._here(frame, sample)
        first = sample.smaller(many.sample_sizes(len(sample.signs), self.cut.k / self.total)[0])
        if many.serves(self.problem, self.cut, len(self.penalty)):
            found = self._flow(frame, sample, rows)
            if found is not None:
                return found
        return self._narrow(frame, first, rows)

    def _average(self, frame: Frame, sample: Sample) -> Array:
        """Return the coordinates that minimise the average loss on the sample."""
        here = ManyRows(sample.X, sample.signs, sample.mass, frame, self.problem.loss)
        penalty = self.penalty * float(sample.mass.sum()) / self.total
        return average(here, penalty, np.zeros(len(penalty))).c

    def _flow(self, frame: Frame, sample: Sample, rows: RemoteRows) -> Ended | None:
        begun = start(sample, self.problem, self.cut, self.total, self.path, frame, self.penalty, self.tol)
        if begun is None:
            return None
        flow = Flow(rows, self.cut.k, self.penalty, begun.metric, self.tol)
        low, high = margins_of(get_loss(rows.name), begun.ramp)
        margins = sample.signs * frame.scores(sample.X, begun.c)
        near = float(((margins > low - 1) & (margins < high + 1)).mean())
        flow.gathers = 1.2 * near * self.rows <= self.room  # the share in the sample is only an estimate
        end = flow.run(begun.c, begun.ramp)
        if end is None or end.sums.errors > (begun.errors + WORSE) * self.total:
            return None
        return Ended(end.c, flow.gap(end))

    def _narrow(self, frame: Frame, few: Sample, rows: RemoteRows) -> Ended:
        """Solve the problem on all rows in stages, starting from the solution for a few rows."""
        share = float(few.mass.sum()) / self.total
        smaller = replace(self.problem, alpha=self.problem.alpha * share)
        smaller = smaller if self.problem.k is None else replace(smaller, k=min(1.0, self.cut.k / self.total))
        c = frame.to_coordinates(*self.path(few, smaller))
        losses = get_loss(rows.name).value(few.signs * frame.scores(few.X, c))
        cut = replace(self.cut, k=self.cut.k * share)
        spot = Spot(c, edge_at(cut, losses, few.mass, rows.threshold))
        walk = Walk(rows, self.penalty, self.stage)
        walk.steps = 300  # each takes one or a few passes
        spot, gap = narrow(walk, spot, self.cut, self.tol)
        return Ended(spot.c, min(gap, 1.0))


def average(rows: Any, penalty: Array, start: Array) -> Ended:
    """Minimise an average loss with Newton steps, one pass per step, or with L-BFGS if there are many columns."""

    def see(c: Array) -> tuple[TangentSums, float, Array, Ended]:
        sums = rows.tangents(c.copy(), LossWindow(), 1e-9)  # there are no kinks
        value = sums.value + 0.5 * float(penalty @ c**2)
        gap = gap_of(value, sums.bound(penalty), max(value, NOTHING * rows.threshold * sums.held))
        return sums, value, sums.across.sum(axis=0) + penalty * c, Ended(c, gap)

    if len(penalty) > LARGEST_RANK:
        return _quasi_newton(see, start)
    c, best, step, end = start, np.inf, np.zeros_like(start), Ended(start, np.inf)
    for _ in range(40):
        sums, value, gradient, here = see(c)
        if not value <= best * (1 + 1e-12):
            step = step / 4  # too long: the quadratic model does not hold there
            c = end.c + step
            continue
        best, end, matrix = value, here, sums.bend + np.diag(penalty)
        scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
        matrix = matrix * scale[:, None] * scale + 1e-13 * np.eye(len(c))
        step = -scale * np.linalg.solve(matrix, scale * gradient)
        if -float(gradient @ step) <= 2e-13 * value:  # coefficients are exact to about the square root of half of this
            break
        c = c + step
    return end


def _quasi_newton(see: Callable[[Array], Any], start: Array) -> Ended:
    """Minimise an average loss with SciPy's L-BFGS, using one pass per evaluation."""
    seen: dict[bytes, Ended] = {}

    def objective(c: Array) -> tuple[float, Array]:
        _, value, gradient, seen[c.tobytes()] = see(c)
        return value, gradient

    options = {"maxfun": 55, "ftol": 1e-14, "gtol": 1e-9, "maxcor": 20}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return Ended(found.x, seen[found.x.tobytes()].gap if found.x.tobytes() in seen else 1.0)
