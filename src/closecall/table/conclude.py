"""Draw conclusions from the splits of a comparison: intervals, paired differences and a verdict.

Intervals and tests are corrected as in Nadeau & Bengio; p-values are adjusted across all tests on the table (Holm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from closecall._names import Array
from closecall.paired import Units, over_tests, paired
from closecall.report.formats import signed
from closecall.report.text import p_words
from closecall.stats import POINTS, SIGNIFICANCE, TEST_OVER_TRAIN, corrected_test, holm
from closecall.table.read.sheet import Sheet

from .compare import ComparePlan, Split
from .contenders import CLOSE_K, LARGEST, MAJORITY, Contender
from .divide import Order
from .measure import METRICS, Metric, confusion


@dataclass(frozen=True)
class Result:
    """The results of one method: its test values on all splits (higher is better) and the settings chosen for it.

    ``method``, ``label``, ``family`` and ``what`` come from the contender; ``loss`` is empty if the method has its own
    loss. ``k``, ``alpha`` (NaN if the method has none) and ``setting`` are the values chosen most often; ``ks`` and
    ``alphas`` are the values on each split. ``confusion`` (true classes, predicted classes) counts the test rows of all
    splits; ``ratio`` is the number of test rows divided by the number of training rows.
    """

    method: str
    label: str
    values: tuple[float, ...]
    k: float = float("nan")
    alpha: float = float("nan")
    loss: str = ""
    family: str = "other"
    what: str = ""
    setting: str = ""
    ks: tuple[float, ...] = field(default=(), repr=False)
    alphas: tuple[float, ...] = field(default=(), repr=False)
    confusion: Array = field(default_factory=lambda: np.zeros((2, 2), dtype=int), repr=False, compare=False)
    ratio: float = TEST_OVER_TRAIN

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval, corrected for overlapping splits."""
        return half_width(np.array(self.values), self.ratio)

    @property
    def title(self) -> str:
        """The label, followed by the loss unless it is logistic."""
        return {"": self.label, "logistic": self.label}.get(self.loss, f"{self.label} ({self.loss})")

    def shown(self, metric: Metric) -> tuple[float, float, float]:
        """Return the mean and its 95 % interval in the displayed units, clipped to possible values."""
        low, high = sorted(metric.shown(self.mean + sign * self.half_width) for sign in (-1, 1))
        return metric.shown(self.mean), max(low, 0.0), min(high, 100.0) if metric.factor == 100 else high

    def record(self, metric: Metric, name: str) -> dict[str, float]:
        """Return the mean, under the given name, and its 95 % interval for JSON output."""
        low, high = sorted(metric.plain(self.mean + sign * self.half_width) for sign in (-1, 1))
        return {name: metric.plain(self.mean), "low": low, "high": high}

    @property
    def recalls(self) -> Array:
        """The recall of each class (classes,)."""
        return np.diagonal(self.confusion) / np.maximum(self.confusion.sum(axis=1), 1)


@dataclass(frozen=True)
class Difference:
    """The difference between two methods on the same splits: its mean, 95 % interval and adjusted p-value."""

    method: str
    mean: float
    half_width: float
    p: float

    @property
    def helps(self) -> bool:
        """Whether the difference is a significant gain."""
        return self.p < SIGNIFICANCE and self.mean > 0

    @property
    def interval(self) -> tuple[float, float, float]:
        """The mean and the bounds of its interval."""
        return self.mean, self.mean - self.half_width, self.mean + self.half_width

    def words(self, metric: Metric) -> str:
        """Return the mean and its interval in the displayed units."""
        mean, low, high = (signed(metric.gain(each), metric.rough) for each in self.interval)
        return f"{mean} {metric.unit} ({low} to {high})"


@dataclass(frozen=True)
class Conclusion:
    """The result of :func:`conclude`: the results of all methods, best first, and a verdict on the method to use.

    ``verdict`` is ``nothing``, ``close-k``, ``logistic``, ``svm``, ``tree`` or ``other``; ``text`` and
    ``reason`` put it into words. ``linear`` is the verdict, in words, if only linear models are allowed. ``helps``
    lists the methods that are significantly better than the ``plain`` model, with the largest gain first.
    """

    results: tuple[Result, ...]
    verdict: str
    use: str
    text: str
    reason: str
    linear: str
    helps: tuple[Difference, ...]
    plain: str
    majority: str
    training_rows: int
    classes: tuple[str, ...]
    metric: Metric

    @property
    def found(self) -> dict[str, Result]:
        """The results, by method."""
        return {result.method: result for result in self.results}

    @property
    def over(self) -> dict[str, Difference]:
        """The tests of the other methods against the plain model; every p-value shown comes from them."""
        return against(self.results, self.found[self.plain])


def half_width(values: Array, ratio: float = TEST_OVER_TRAIN) -> float:
    """Return half the width of the corrected 95 % interval for the mean of values (splits,)."""
    spread = np.std(values, ddof=1) * np.sqrt(1 / len(values) + ratio)
    return float(stats.t.ppf(1 - SIGNIFICANCE / 2, len(values) - 1) * spread)


def conclude(
    table: Sheet, splits: Sequence[Split], plan: ComparePlan, contenders: Sequence[Contender] = (),
    order: Order | None = None,
) -> Conclusion:  # fmt: skip
    """Rank the methods and choose one; gains are relative to the plain model for the loss."""
    metric, plain = METRICS[plan.metric], plan.plain[0]
    classes, counts = np.unique(table.labels.astype(str), return_counts=True)
    results = [_result(each, splits, len(classes)) for each in (*(contenders or plan.contenders()), LARGEST)]
    learns = clearly_learns(splits, results, (order or Order()).units(len(table.labels)))
    # Methods are ranked by their means, up to rounding; the plain model wins ties.
    results.sort(key=lambda result: (-round(result.mean, 12), result.method != plain))
    largest = str(classes[counts.argmax()])
    verdict = judge({result.method: result for result in results}, plan.plain, metric, largest, learns)
    names = tuple(map(str, classes))
    return Conclusion(tuple(results), *verdict, plain, largest, splits[0].training, names, metric)


def _result(contender: Contender, splits: Sequence[Split], classes: int) -> Result:
    entries = [split.entries[contender.name] for split in splits]
    chosen = [(entry.k, entry.alpha, entry.setting) for entry in entries]
    words = list(map(repr, chosen))  # NaN does not equal itself, but its text does
    k, alpha, setting = chosen[words.index(max(words, key=words.count))]
    table: Any = sum(confusion(split.truth, split.entries[contender.name].predicted, classes) for split in splits)
    ratio = float(np.mean([len(split.rows) / split.known for split in splits]))
    values, ks, alphas = (tuple(getattr(entry, name) for entry in entries) for name in ("value", "k", "alpha"))
    same = contender.name, contender.label, values, k, alpha, entries[0].loss, contender.family, contender.what
    return Result(*same, setting, ks, alphas, table, ratio)


def clearly_learns(splits: Sequence[Split], results: Sequence[Result], units: Units) -> bool:
    """Test, row by row, whether any contender is clearly more accurate than always predicting the largest class.

    A test over rows is more sensitive than one over a few splits. The significance level is divided among the
    contenders.
    """
    total, squares, times = np.zeros((3, len(units.codes)))
    tested = [result for result in results if result.method != MAJORITY]
    guard = float(stats.norm.isf(SIGNIFICANCE / max(1, len(tested))))
    for result in tested:
        total[:], squares[:], times[:] = 0, 0, 0
        for split in splits:
            right, plain = (split.entries[name].predicted == split.truth for name in (result.method, MAJORITY))
            np.add.at(total, split.rows, right.astype(float) - plain)
            np.add.at(squares, split.rows, right != plain)
            np.add.at(times, split.rows, 1)
        gains, spread = over_tests(total, squares, times)
        gain = paired(gains, np.ones(len(total)), units, spread)
        if gain.mean > max(gain.needed(guard), 1e-12):
            return True
    return False


def against(results: Sequence[Result], reference: Result) -> dict[str, Difference]:
    """Return how much every other result differs from the reference on the same splits, with adjusted p-values."""
    others = [result for result in results if result.method != reference.method]
    moves = [np.array(other.values) - np.array(reference.values) for other in others]
    p = [corrected_test(move, np.zeros_like(move), test_over_train=reference.ratio) for move in moves]
    adjusted = holm(np.array(p, dtype=float))
    return {
        other.method: Difference(other.method, float(move.mean()), half_width(move, reference.ratio), float(value))
        for other, move, value in zip(others, moves, adjusted, strict=True)
    }


def judge(
    found: dict[str, Result], plain: tuple[str, str, str], metric: Metric, largest: str, learns: bool = False
) -> tuple[str, str, str, str, str, tuple[Difference, ...]]:
    """Return the verdict, the method to use, the verdict in words, the reason, the linear verdict, and the gains.

    ``learns`` states whether any contender is known to be better than always predicting the largest class, even if its
    gains on the splits are not significant.
    """
    over = against(list(found.values()), found[plain[0]])
    over.pop(MAJORITY, None)
    helps = tuple(sorted((each for each in over.values() if each.helps), key=lambda each: -each.mean))
    linear = _linear(over.get(CLOSE_K), plain[2], metric)
    reason = _reason(over, found, plain[2], metric)
    tested = [found[name] for name in (plain[0], *over)]
    beaten = against(tested, found[MAJORITY]) if MAJORITY in found else {}
    if beaten and not learns and not any(each.helps for each in beaten.values()):
        text = f"no model learns anything here: always predicting {largest!r} is just as good"
        reason = f"no model is significantly better than always predicting the largest class; {reason}"
        return "nothing", MAJORITY, text, reason, linear, ()
    if not helps:
        return plain[1], plain[0], linear, reason, linear, ()
    best = found[helps[0].method]
    if best.method == CLOSE_K:
        return "close-k", CLOSE_K, linear, reason, linear, helps
    start = f"use {best.label}" if best.family == "linear" else f"{best.label} does better than linear models"
    text, verdict = f"{start}: {helps[0].words(metric)}", "tree" if best.family == "tree" else "other"
    return verdict, best.method, text, f"{reason}; if the model has to be linear, {linear}", linear, helps


def _linear(gain: Difference | None, plain: str, metric: Metric) -> str:
    """Return the verdict on close-k as trained by `closecall fit`."""
    if gain is None:
        return f"use {plain}"
    if gain.helps:
        return f"use close-k: {gain.words(metric)} over {plain}"
    if gain.p < SIGNIFICANCE:
        return f"use {plain}: close-k does worse"
    if metric.factor == 100 and gain.mean + gain.half_width >= POINTS:
        return f"use {plain}: close-k shows no clear gain"
    return f"use {plain}: it is as good as close-k"


def _reason(over: dict[str, Difference], found: dict[str, Result], plain: str, metric: Metric) -> str:
    ranked = sorted(over.values(), key=lambda each: -each.mean)
    words = [
        f"{found[each.method].label} {each.words(metric)}, {p_words(each.p, '.2g')}" if each.mean or each.half_width
        else f"{found[each.method].label} no difference"
        for each in ranked[:4]
    ]  # fmt: skip
    return f"gains over {plain}, largest first: {'; '.join(words)}" if words else f"only {plain} took part"
