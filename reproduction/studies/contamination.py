"""Label noise, outliers and ambiguous examples: close-k beside its rivals, for three ways to learn, on six sets.

Training and validation part are spoiled alike, the test part is left as it is. Every method has the same penalties and
a few values of its own setting, fixed before the first run; the spoiled validation part chooses.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import t as student

from closecall.losses import LOSSES, Loss, get_loss
from closecall.network import train_grid
from closecall.objective import Problem
from closecall.solvers import solve
from closecall.table.read.encode import moments
from closecall.table.splits import stratified
from reproduction.protocol.plan import NETWORK_RATES, NETWORK_STEPS
from reproduction.protocol.simulate import ambiguity, outliers
from reproduction.protocol.splits import Division

from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    dataset,
    interval_chart,
    lines_of,
    made_by,
    markdown,
    resume,
    save_chart,
)

#: Sets that need no download, of 554 to 2,000 rows.
SETS = ("monk3", "tic-tac-toe", "xd6", "wdbc", "twonorm", "ringnorm")
MODELS = ("linear", "network", "mini-batches")
BASE, CLOSE, MEMORY, STOPPED = "average", "close decay", "close decay, memory", "early stopping"
METHODS = (BASE, CLOSE, MEMORY, "trimmed", "label smoothing", "generalised CE", STOPPED)
STEPS, ALPHAS = 300, (0.01, 1.0, 100.0)
#: Shares taken by close-k and left out by trimming, smoothing and the exponent q: what each method may choose from.
SHARES, TRIMS, SMOOTHING, EXPONENTS = (0.1, 0.3, 0.6), (0.05, 0.1, 0.2), (0.1, 0.2, 0.4), (0.4, 0.7, 1.0)
#: Ways to learn with fewer seeds than this are not shown.
FEWEST = 5
#: Test rows for each row that was learnt or chosen from, for Nadeau and Bengio's correction: splits overlap.
TEST_OVER_TRAIN = 1 / 3


# --- what is done to the data


def _flip(X: Array, y: Array, share: float, rng: np.random.Generator) -> tuple[Array, Array]:
    return X, np.where(rng.random(len(y)) < share, -y, y)


#: What is done to a part of the data, (X, y, generator) -> (X, y).
SPOILED: dict[str, Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]] = {
    "nothing": lambda X, y, rng: (X, y),
    "10 % labels flipped": lambda X, y, rng: _flip(X, y, 0.1, rng),
    "20 % labels flipped": lambda X, y, rng: _flip(X, y, 0.2, rng),
    "5 % outliers": lambda X, y, rng: outliers(X, y, round(0.05 * len(y)), rng),
    "10 % ambiguous": lambda X, y, rng: ambiguity(X, y, round(0.1 * len(y)), rng),
}


def divided(name: str, spoiled: str, split: int) -> Division:
    """Parts of a set, divided alike whatever is done to them, scaled by the training part as it then is.

    Examples
    --------
    >>> plain, noisy = (divided("monk3", how, 0) for how in ("nothing", "20 % labels flipped"))
    >>> [bool((a == b).all()) for a, b in zip(plain.y, noisy.y)]
    [False, False, True]
    """
    data, place = dataset(f"embedded:{name}"), SETS.index(name)
    signs = data.signs()
    rows = stratified(signs, np.random.default_rng([0, place, split]))
    X, y = list(data.encode(*rows)), [signs[part] for part in rows]
    rng = np.random.default_rng([1, place, split])
    for part in (0, 1):
        X[part], y[part] = SPOILED[spoiled](X[part], y[part], rng)
    mean, scale = moments(X[0])
    return Division(tuple((part - mean) / scale for part in X), tuple(y))


# --- the rivals' losses: both are functions of the margin


def smoothed(share: float) -> Loss:
    """The logistic loss with smoothed labels, as that of two classes in torch."""
    plain = get_loss("logistic")
    own, other = 1 - share / 2, share / 2
    return Loss(
        f"smoothed {share:g}",
        lambda m: own * plain.value(m) + other * plain.value(-m),
        lambda m: own * plain.slope(m) - other * plain.slope(-m),
        plain.threshold, plain.curvature, convex=True,
    )  # fmt: skip


def generalised(q: float) -> Loss:
    """Zhang and Sabuncu's (1 - p^q) / q, p the probability of the label; q = 1 is the mean absolute error."""
    return Loss(
        f"generalised {q:g}", lambda m: (1 - expit(m) ** q) / q, lambda m: -(expit(m) ** q) * expit(-m),
        (1 - 0.5**q) / q, 0.25, convex=False, falls=(-np.inf, np.inf),
    )  # fmt: skip


@contextlib.contextmanager
def rivals() -> Iterator[None]:
    """The rivals' losses are known by name inside."""
    added = {loss.name: loss for loss in (*map(smoothed, SMOOTHING), *map(generalised, EXPONENTS))}
    LOSSES.update(added)
    try:
        yield
    finally:
        for name in added:
            del LOSSES[name]


# --- learning: every way returns how many are right on validation and test, for each setting of each method


class Tried(NamedTuple):
    """One setting of a method: how many it gets right."""

    method: str
    validation: int
    test: int


def problems_of(n: int) -> list[tuple[str, Problem]]:
    """Method and problem of every setting, the mildest first: of equals on validation the first is chosen."""
    settings: list[tuple[str, str, str, Any, Any]] = [(BASE, "logistic", "average", n, None)]
    settings += [(CLOSE, "logistic", "close_decay", share, None) for share in reversed(SHARES)]
    settings += [("trimmed", "logistic", "trimmed", None, share) for share in TRIMS]
    settings += [("label smoothing", f"smoothed {share:g}", "average", n, None) for share in SMOOTHING]
    settings += [("generalised CE", f"generalised {q:g}", "average", n, None) for q in EXPONENTS]
    return [
        (method, Problem(loss, aggregate, k, alpha, m))
        for method, loss, aggregate, k, m in settings
        for alpha in reversed(ALPHAS)
    ]


def _right(scores: Array, y: Array) -> Array:
    return (scores * y > 0).sum(axis=-1)


def linear(parts: Division, seed: int) -> list[Tried]:
    """Linear models, solved; stopping early is left out: it does what a larger penalty does."""
    methods, problems = zip(*problems_of(parts.sizes[0]), strict=True)
    found = solve(parts.X[0], parts.y[0], list(problems), max_iter=STEPS)
    held, test = (
        _right(found.coef @ X.T + found.intercept[:, None], y) for X, y in zip(parts.X[1:], parts.y[1:], strict=True)
    )
    return [Tried(*each) for each in zip(methods, held.tolist(), test.tolist(), strict=True)]


def network(parts: Division, seed: int) -> list[Tried]:
    """The paper's network, full batches."""
    named = problems_of(parts.sizes[0])
    plain = [(STOPPED, problem) for method, problem in named if method == BASE]
    tried = []
    for group, validation in ((named, None), (plain, (parts.X[1], parts.y[1]))):
        grid = train_grid(
            parts.X[0], parts.y[0], [problem for _, problem in group], max_iter=NETWORK_STEPS, seed=seed,
            learning_rate=max(NETWORK_RATES.values()), validation=validation,
        )  # fmt: skip
        held, test = (_right(grid.scores(X), y).tolist() for X, y in zip(parts.X[1:], parts.y[1:], strict=True))
        tried += [Tried(method, *right) for (method, _), right in zip(group, zip(held, test, strict=True), strict=True)]
    return tried


def mini_batches(parts: Division, seed: int) -> list[Tried]:
    """The same network in mini-batches (torch)."""
    from .contamination_torch import train

    return [Tried(*each) for each in train(parts, seed)]


WAYS: dict[str, Callable[[Division, int], list[Tried]]] = dict(
    zip(MODELS, (linear, network, mini_batches), strict=True)
)


def run_one(key: Row) -> Row:
    """Test accuracy of what validation chooses, for each method."""
    began = time.perf_counter()
    parts = divided(key["set"], key["spoiled"], key["split"])
    with rivals():
        tried = WAYS[key["model"]](parts, key["split"])
    best: dict[str, Tried] = {}
    for each in tried:
        if each.method not in best or each.validation > best[each.method].validation:
            best[each.method] = each
    accuracy = {method: each.test / parts.sizes[2] for method, each in best.items()}
    return {"accuracy": accuracy, "seconds": time.perf_counter() - began}


def run(settings: Settings) -> None:
    keys = [
        {"set": name, "spoiled": spoiled, "model": model, "split": split}
        for model in MODELS  # the cheapest first
        for split in range(settings.splits)  # then seeds: whatever is there is all cases in some of them
        for spoiled in SPOILED
        for name in settings.sets or SETS
    ]
    resume(settings, "contamination", keys, run_one)


# --- from results to the page


def interval(gains: Array, overlap: float) -> tuple[float, float, float]:
    """Mean and 95 % interval of Student's t; ``overlap`` adds to the variance what overlapping splits share.

    Examples
    --------
    >>> [round(each, 2) for each in interval(np.array([1.0, 2.0, 3.0]), 0.0)]
    [2.0, -0.48, 4.48]
    """
    mean, n = float(gains.mean()), len(gains)
    if n < 2:
        return mean, float("nan"), float("nan")
    half = float(student.ppf(0.975, n - 1) * gains.std(ddof=1) * np.sqrt(1 / n + overlap))
    return mean, mean - half, mean + half


def _seeds(keys: list[tuple[str, str, str, int]]) -> int:
    """How many seeds every case of a model has."""
    cases = {(spoiled, name) for _, spoiled, name, _ in keys}
    if {spoiled for spoiled, _ in cases} != set(SPOILED):
        return 0
    return min(sum(key[1:3] == case for key in keys) for case in cases)


def table(settings: Settings) -> list[Row]:
    """One row for each (model, what is done, set, method), and one over all sets, in points over average."""
    lines = lines_of(settings, "contamination")
    found = {(line["model"], line["spoiled"], line["set"], line["split"]): line["accuracy"] for line in lines}
    rows = []
    for model, spoiled in dict.fromkeys(key[:2] for key in found):
        whole = _seeds([key for key in found if key[0] == model])
        if whole < FEWEST:
            continue
        names = list(dict.fromkeys(key[2] for key in found if key[:2] == (model, spoiled)))
        for method in found[model, spoiled, names[0], 0]:
            scores = {
                name: np.array([(found[model, spoiled, name, s][method], found[model, spoiled, name, s][BASE])
                                for s in range(whole)]) for name in names
            }  # fmt: skip
            gains = {name: 100 * (values[:, 0] - values[:, 1]) for name, values in scores.items()}
            over_sets = interval(np.array([each.mean() for each in gains.values()]), 0.0)
            shown = {name: interval(each, TEST_OVER_TRAIN) for name, each in gains.items()} | {"all": over_sets}
            for name, (mean, low, high) in shown.items():
                accuracy = np.mean([values[:, 0].mean() for key, values in scores.items() if name in (key, "all")])
                rows.append(
                    {"model": model, "spoiled": spoiled, "set": name, "method": method, "seeds": whole,
                     "accuracy": 100 * float(accuracy), "mean": mean, "low": low, "high": high}
                )  # fmt: skip
    return rows


def _cell(row: Row) -> str:
    text = f"{row['mean']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
    return f"**{text}**" if row["low"] > 0 or row["high"] < 0 else text


def _over(found: list[Row], model: str) -> str:
    """Methods x what is done, over all sets; the first line is average's own accuracy."""
    mine = {(row["method"], row["spoiled"]): row for row in found if (row["model"], row["set"]) == (model, "all")}
    lines = [[BASE, *(f"{mine[BASE, spoiled]['accuracy']:.1f} %" for spoiled in SPOILED)]]
    for method in METHODS[1:]:
        if (method, "nothing") in mine:
            lines.append([method, *(_cell(mine[method, spoiled]) for spoiled in SPOILED)])
    return markdown([model, *SPOILED], lines)


def _verdicts(found: list[Row]) -> list[str]:
    """For each way to learn: where close decay gains or loses beyond doubt, and which rival gains more on average."""
    lines = []
    for model in dict.fromkeys(row["model"] for row in found):
        mine = [row for row in found if (row["model"], row["set"]) == (model, "all")]
        method = MEMORY if any(row["method"] == MEMORY for row in mine) else CLOSE
        close = {row["spoiled"]: row for row in mine if row["method"] == method}
        clear = {word: [s for s, row in close.items() if sign * row[end] > 0]
                 for word, sign, end in (("gains", 1, "low"), ("loses", -1, "high"))}  # fmt: skip
        ahead = [
            s
            for s, row in close.items()
            if all(row["mean"] >= other["mean"] for other in mine if other["spoiled"] == s)
        ]
        words = [f"{word} with {', '.join(names)}" for word, names in clear.items() if names]
        told = "; ".join(words) or "neither gains nor loses beyond doubt"
        each = [row for row in found if (row["model"], row["method"]) == (model, method) and row["set"] != "all"]
        lines.append(
            f"- **{model}**: {method} {told} (95 % interval over the sets). It is the best of all methods on average "
            f"with {', '.join(ahead) if ahead else 'none of them'}. Set by set (intervals over the seeds, corrected "
            f"for overlapping splits) it gains beyond doubt in {sum(row['low'] > 0 for row in each)} of {len(each)} "
            f"cases and loses in {sum(row['high'] < 0 for row in each)}."
        )
    return lines


def _words(found: list[Row]) -> str:
    """How many seeds each way to learn has, and which have too few to be shown."""
    seeds = {row["model"]: row["seeds"] for row in found}
    words = [f"{count:.0f} seeds for {model}" for model, count in seeds.items()]
    missing = [model for model in MODELS if model not in seeds]
    return ", ".join(words) + (f" (not run far enough: {', '.join(missing)})" if missing else "")


def _answer(found: list[Row]) -> str:
    """Where close decay gains beyond doubt, model by model, in a sentence."""
    parts = []
    for model in dict.fromkeys(row["model"] for row in found):
        gains = [
            f"{row['spoiled']} ({row['mean']:+.1f})"
            for row in found
            if (row["model"], row["set"]) == (model, "all") and "close decay" in row["method"] and row["low"] > 0
        ]
        parts.append(f"{model}: {', '.join(dict.fromkeys(gains)) or 'nowhere'}")
    return f"**Where close decay gains over average beyond doubt, in points. {'; '.join(parts).capitalize()}.**\n"


def page(found: list[Row], figure: Path) -> str:
    noisy = [row for row in found if (row["spoiled"], row["set"]) == ("20 % labels flipped", "all")]
    shown = [row | {"label": f"{row['model']}: {row['method']}"} for row in noisy if row["method"] != BASE]
    save_chart(interval_chart(shown, label="label", title="points over average, 20 % of the labels flipped"), figure)
    models = list(dict.fromkeys(row["model"] for row in found))
    return "\n".join(
        [
            "# Noise, outliers and ambiguity\n",
            _answer(found),
            "## What it says\n",
            *_verdicts(found),
            "",
            "## Test accuracy over that of average, in points\n",
            "Means over the sets with 95 % intervals over the sets; bold: the interval leaves out 0.\n",
            *(f"{_over(found, model)}\n" for model in models),
            f"![Points over average](beyond/{figure.name})\n",
            "The table behind this page has them set by set, with intervals over the seeds.",
            "\n## How it was measured\n",
            f"{len({row['set'] for row in found} - {'all'})} sets that need no download ({', '.join(SETS)}), "
            f"{_words(found)}; each seed is a stratified division 50/25/25. Training and validation part are spoiled "
            "alike, the test part is clean. Linear models are solved with the logistic loss; the network is "
            f"the paper's, {NETWORK_STEPS} full steps of Adam. There every method chooses its setting (close decay "
            f"k/n of {SHARES}, trimming {TRIMS}, smoothing {SMOOTHING}, the exponent of the generalised cross-entropy "
            f"{EXPONENTS}) and the penalty by the spoiled validation part. In mini-batches (400 steps of 64) each has "
            "one: k/n 0.5, by the batch or among the last 1,024 examples; trimming 0.2, smoothing 0.2, exponent 0.7.\n",
            made_by("contamination"),
        ]
    )


EXPERIMENT = Experiment("contamination", run, table, page, splits=10)
