"""What the splits of a comparison say: intervals, paired differences, and a plain verdict.

Intervals and tests are Nadeau & Bengio's corrected ones, Holm-adjusted over the questions asked of this table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from closecall._names import Array
from closecall.data.sheet import Sheet
from closecall.evaluate.grid import BASELINES, LABELS
from closecall.evaluate.pairs import POINTS
from closecall.evaluate.stats import SIGNIFICANCE, TEST_OVER_TRAIN, corrected_test, holm

from .compare import TREE, Split

VERDICTS = {
    "close-k": "use close-k",
    "logistic": "plain logistic regression is as good",
    "svm": "a plain linear SVM is as good",
    "average": "the plain average of this loss is as good",
    "tree": "a tree would do much better",
}
#: What is said instead where a gain of two points cannot be ruled out: "as good" would promise too much.
OPEN = {
    "logistic": "no clear gain over plain logistic regression",
    "svm": "no clear gain over a plain linear SVM",
    "average": "no clear gain over the plain average of this loss",
}
#: The loss that the question is about -> what its average is known as.
PLAIN = {"logistic": "logistic", "hinge": "svm"}


@dataclass(frozen=True)
class Result:
    """One method over the splits: test accuracies, and the settings that validation chose.

    Parameters
    ----------
    method, label : str
        Its name, one for each result, and the same in words.
    accuracies : tuple of float
        One for each split.
    k, alpha : float
        As chosen most often; NaN where there is none.
    loss : str
        Empty where the method has its own.
    ks, alphas : tuples of float
        As chosen on each split.
    """

    method: str
    label: str
    accuracies: tuple[float, ...]
    k: float
    alpha: float
    loss: str = ""
    ks: tuple[float, ...] = field(default=(), repr=False)
    alphas: tuple[float, ...] = field(default=(), repr=False)

    @property
    def mean(self) -> float:
        """Mean accuracy."""
        return float(np.mean(self.accuracies))

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval, corrected for splits that share rows."""
        return half_width(np.array(self.accuracies))


@dataclass(frozen=True)
class Difference:
    """A method minus another on the same splits: mean, half of its 95 % interval, adjusted p."""

    method: str
    reference: str
    mean: float
    half_width: float
    p: float

    @property
    def sure(self) -> bool:
        """Whether it is significant."""
        return self.p < SIGNIFICANCE


@dataclass(frozen=True)
class Conclusion:
    """What :func:`conclude` makes of the splits: results best first, the verdict, the same in words, and its reason."""

    results: tuple[Result, ...]
    verdict: str
    text: str
    reason: str
    majority: float
    training_rows: int
    loss: str = "logistic"

    @property
    def found(self) -> dict[str, Result]:
        """The results by method."""
        return {result.method: result for result in self.results}


def half_width(values: Array) -> float:
    """Half of the corrected 95 % interval of a mean over splits.

    Parameters
    ----------
    values : array (splits,)

    Examples
    --------
    >>> round(half_width(np.array([0.8, 0.82, 0.84])), 3)
    0.07
    """
    spread = np.std(values, ddof=1) * np.sqrt(1 / len(values) + TEST_OVER_TRAIN)
    return float(stats.t.ppf(1 - SIGNIFICANCE / 2, len(values) - 1) * spread)


def named(method: str, loss: str) -> str:
    """The name of a method's result: that of the method, and of the loss unless it is the logistic one.

    Examples
    --------
    >>> named("close_decay", "logistic"), named("close_decay", "hinge"), named("linear_svc", "")
    ('close_decay', 'close_decay_hinge', 'linear_svc')
    """
    return method if loss in ("", "logistic") else f"{method}_{loss}"


def conclude(table: Sheet, splits: Sequence[Split], loss: str = "logistic") -> Conclusion:
    """Rank the methods over the splits and say what to use.

    Parameters
    ----------
    table : Sheet
    splits : sequence of Split
        As :func:`closecall.tabular.compare.run_splits` yields them.
    loss : str
        The one that the verdict is about.
    """
    pairs = {(str(row["method"]), str(row["loss"])) for row in splits[0].rows}
    results = [_result(*pair, splits) for pair in sorted(pairs, key=_place)]
    verdict, text, reason = judge({result.method: result for result in results}, loss)
    _, counts = np.unique(table.labels.astype(str), return_counts=True)
    ranked = tuple(sorted(results, key=lambda result: -result.mean))
    return Conclusion(ranked, verdict, text, reason, float(counts.max() / counts.sum()), splits[0].training, loss)


def _place(pair: tuple[str, str]) -> tuple[int, str]:
    return list(LABELS).index(pair[0]), pair[1]


def _result(method: str, loss: str, splits: Sequence[Split]) -> Result:
    rows = [split.rows[(split.rows["method"] == method) & (split.rows["loss"] == loss)][0] for split in splits]
    chosen = [(float("nan") if method in (TREE, *BASELINES) else float(row["k"]), float(row["alpha"])) for row in rows]
    k, alpha = chosen[_often([repr(pair) for pair in chosen])]
    accuracies = tuple(float(row["test"] / split.test) for row, split in zip(rows, splits, strict=True))
    ks, alphas = zip(*chosen, strict=True)
    return Result(named(method, loss), LABELS[method], accuracies, k, alpha, loss, ks, alphas)


def _often(values: Sequence[str]) -> int:
    """The place of the most frequent value."""
    return values.index(Counter(values).most_common(1)[0][0])


def against(results: Sequence[Result], reference: Result) -> dict[str, Difference]:
    """Each result minus the reference, split by split, with p adjusted over all of them; the reference is left out.

    Examples
    --------
    >>> def flat(method, *scores): return Result(method, method, scores, 1.0, 1.0)
    >>> base = flat("a", 0.8, 0.8, 0.8)
    >>> round(against([base, flat("b", 0.9, 0.9, 0.89)], base)["b"].mean, 3)
    0.097
    """
    others = [result for result in results if result.method != reference.method]
    return {each.method: each for each in _differences([(other, reference) for other in others])}


def _differences(pairs: Sequence[tuple[Result, Result]]) -> list[Difference]:
    """First minus second of each pair, p adjusted over the pairs."""
    moves = [np.array(first.accuracies) - np.array(second.accuracies) for first, second in pairs]
    p = holm(np.array([corrected_test(move, np.zeros_like(move)) for move in moves]))
    return [
        Difference(first.method, second.method, float(move.mean()), half_width(move), float(value))
        for (first, second), move, value in zip(pairs, moves, p, strict=True)
    ]


def judge(found: dict[str, Result], loss: str = "logistic") -> tuple[str, str, str]:
    """The verdict (a key of VERDICTS), the same in words, and its reason.

    Examples
    --------
    >>> def flat(method, *scores): return Result(method, method, scores, 1.0, 1.0)
    >>> judge({"average": flat("average", 0.8, 0.81, 0.79), "close_decay": flat("close_decay", 0.9, 0.91, 0.9),
    ...        TREE: flat(TREE, 0.9, 0.9, 0.91)})[:2]
    ('close-k', 'use close-k')
    """
    gain, tree = questions(found, loss)
    words = [
        f"{100 * each.mean:+.1f} points, {p_value(each.p)}" if each.mean else "no difference" for each in (gain, tree)
    ]
    reason = (
        f"close-k with decay against the average {loss} loss: {words[0]}; a tree against the better of the two: "
        f"{words[1]}"
    )
    linear = "close-k" if gain.sure and gain.mean > 0 else PLAIN.get(loss, "average")
    text = VERDICTS[linear]
    low, high = gain.mean - gain.half_width, gain.mean + gain.half_width
    if linear != "close-k" and high >= POINTS:
        text = OPEN[linear]
        reason += f"; these splits leave {100 * low:+.1f} to {100 * high:+.1f} points possible, more of them may tell"
    if tree.sure and tree.mean >= POINTS:
        return "tree", VERDICTS["tree"], f"{reason}; if it has to be linear, {text}"
    return linear, text, reason


def questions(found: dict[str, Result], loss: str = "logistic") -> tuple[Difference, Difference]:
    """What the verdict rests on: close-k with decay minus average; a tree minus the better of the two."""
    average, close, tree = found[named("average", loss)], found[named("close_decay", loss)], found[TREE]
    best = max(average, close, key=lambda result: result.mean)
    gain, yardstick = _differences([(close, average), (tree, best)])
    return gain, yardstick


def p_value(p: float) -> str:
    """A p-value in words.

    Examples
    --------
    >>> p_value(0.0312), p_value(1e-9), p_value(0.0), p_value(1.0)
    ('p = 0.031', 'p < 0.0001', 'p < 0.0001', 'p = 1')
    """
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"
