"""Who wins where: every aggregate of the family, tuned alike, on clean and on spoiled tables.

All members have the same number of settings, fixed before the first run, and the validation part chooses. Training and
validation part are spoiled alike, the test part is left as it is. Beside them stand yardsticks on the same parts, and
cross-validated searches that have training and validation part to divide by themselves.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegressionCV

from closecall import AggregateLossClassifierCV, CloseKClassifierCV
from closecall.losses import get_loss
from closecall.objective import Problem
from closecall.solvers import solve
from closecall.table.read.encode import moments
from reproduction.protocol import SUITES
from reproduction.protocol.simulate import ambiguity, outliers
from reproduction.protocol.splits import Division

from .common import Array, Experiment, Row, Settings, at_hand, dataset, division, lines_of, resume
from .compare import FEWEST_ROWS, title
from .family_page import write_page

#: The length of a run of the classifiers' own searches.
STEPS = 150
SPLITS = 10
#: Of members with three shapes; those without a shape have as many settings on a finer grid of the same range.
ALPHAS = tuple(10.0**power for power in (3.0, 1.5, 0.0, -1.5, -3.0))
FINE = tuple(10.0**power for power in np.linspace(3, -3, 3 * len(ALPHAS)))
BASE, CLEAN = "average", "clean"
#: Spoiled tables are those of at least FEWEST_ROWS rows and at most so many values.
MOST_SPOILED = 10_000
#: Clean tables of more values than this are not run, and those of more than MOST_EARLY come last.
MOST_VALUES, MOST_EARLY = 900_000, 40_000
#: Spoiled tables have fewer splits, and searches, which cost most, are run on the first of them only.
SPOILED_SPLITS, SEARCHED_SPLITS = 5, 3

#: Shapes of a member, the mildest first: (loss, aggregate, k, m). A single one has the finer grid of alphas.
Shape = tuple[str, str, float | None, float | None]
MEMBERS: dict[str, list[Shape]] = {
    BASE: [("logistic", "average", None, None)],
    "close": [("logistic", "close", k, None) for k in (0.4, 0.1, 0.01)],
    "close decay": [("logistic", "close_decay", k, None) for k in (0.4, 0.1, 0.01)],
    "average top-k": [("logistic", "atk", k, None) for k in (0.7, 0.4, 0.1)],
    "maximal": [("logistic", "maximal", None, None)],
    "top": [("logistic", "top", k, None) for k in (0.3, 0.1, 0.03)],
    "trimmed": [("logistic", "trimmed", None, m) for m in (0.01, 0.05, 0.2)],
    "ranked range": [("logistic", "ranked_range", k, m) for k, m in ((0.7, 0.01), (0.7, 0.05), (0.4, 0.1))],
    "tilted, t > 0": [("logistic", f"tilted({t:g})", None, None) for t in (0.5, 1, 4)],
    "tilted, t < 0": [("logistic", f"tilted({t:g})", None, None) for t in (-0.5, -1, -4)],
    "superquantile, smooth": [("logistic", f"superquantile({s})", None, None) for s in ("0.5,1", "0.8,1", "0.8,0.1")],
    "human-aligned": [("logistic", f"human({s})", None, None) for s in ("0.4,0.7", "0.4,0.3", "0.8,0.3")],
    "generalised CE": [("generalized_cross_entropy", "average", None, None)],
    "sigmoid loss": [("sigmoid", "average", None, None)],
    "ramp loss": [("ramp", "average", None, None)],
    "hinge average": [("hinge", "average", None, None)],
    "hinge close decay": [("hinge", "close_decay", k, None) for k in (0.4, 0.1, 0.01)],
}
#: Of Huber's weights: the quantile of the losses from which they fall, and how often they are found again.
QUANTILES, ROUNDS = (0.95, 0.8, 0.5), 3
LDA, HUBER, CLIPPED, BOTH = "discriminant analysis", "Huber weights", "clipped, average", "clipped, close decay"
YARDSTICKS = (LDA, HUBER, CLIPPED, BOTH)
PEER, CLOSE_CV, FAMILY_CV = "LogisticRegressionCV", "guard over close-k", "guard over the family"
SEARCHES = (PEER, CLOSE_CV, FAMILY_CV)
#: What the guard over the family chooses from, ranked ranges with every pair of k and m.
GUARDED = ("close", "close_decay", "atk", "maximal", "top", "trimmed", "ranked_range", "tilted(1)", "tilted(-1)")
KS, MS = (0.4, 0.1), (0.05, 0.2)
METHODS = (*MEMBERS, *YARDSTICKS, *SEARCHES)


# --- what is done to the data


def _flip(X: Array, y: Array, rows: Array) -> tuple[Array, Array]:
    return X, np.where(rows, -y, y)


def _rare(X: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """The smaller class loses four in five of its rows, and keeps five if it has them."""
    rare = np.flatnonzero(y == (1 if (y > 0).sum() <= (y < 0).sum() else -1))
    gone = rng.permutation(rare)[max(5, round(len(rare) / 5)) :]
    return np.delete(X, gone, axis=0), np.delete(y, gone)


def _ambiguous(X: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return ambiguity(X, y, min(round(0.2 * len(y)), int((y < 0).sum()) // 2), rng)


Spoil = Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]
TROUBLES: dict[str, Spoil] = {
    CLEAN: lambda X, y, rng: (X, y),
    "5 % far outliers": lambda X, y, rng: outliers(X, y, round(0.05 * len(y)), rng),
    "20 % labels flipped": lambda X, y, rng: _flip(X, y, rng.random(len(y)) < 0.2),
    "30 % of one class flipped": lambda X, y, rng: _flip(X, y, (y > 0) & (rng.random(len(y)) < 0.3)),
    "imbalance": _rare,
    "20 % ambiguous": _ambiguous,
}


def spoiled(name: str, trouble: str, split: int) -> Division:
    """The benchmark's parts of a set; training and validation part spoiled, all scaled by what is trained on then.

    Examples
    --------
    >>> plain, noisy = (spoiled("embedded:monk3", how, 0) for how in ("clean", "20 % labels flipped"))
    >>> [bool((a == b).all()) for a, b in zip(plain.y, noisy.y)]
    [False, False, True]
    """
    parts = division(name, split)
    if trouble == CLEAN:
        return parts
    X, y = list(parts.X), list(parts.y)
    rng = np.random.default_rng([list(TROUBLES).index(trouble), split, *title(name).encode()])
    for part in (0, 1):
        X[part], y[part] = TROUBLES[trouble](X[part], y[part], rng)
    mean, scale = moments(X[0])
    return Division(tuple((each - mean) / scale for each in X), tuple(y))


def clipped(parts: Division) -> Division:
    """Columns cut at three robust deviations of the training part, as they were scaled.

    A column of which half the values are equal has no such deviation; it is cut at its 5 and 95 % quantiles if they
    differ.
    """
    middle = np.median(parts.X[0], axis=0)
    deviation = 3 * 1.4826 * np.median(np.abs(parts.X[0] - middle), axis=0)
    low, high = np.quantile(parts.X[0], [0.05, 0.95], axis=0)
    kept = np.where(low < high, [low, high], [[-np.inf], [np.inf]])
    low, high = np.where(deviation > 0, [middle - deviation, middle + deviation], kept)
    X = [np.clip(each, low, high) for each in parts.X]
    mean, scale = moments(X[0])
    return Division(tuple((each - mean) / scale for each in X), parts.y)


# --- learning: how many are right on validation and test, for each setting in order


def problems_of(shapes: Sequence[Shape]) -> list[Problem]:
    """A member's settings: of equals on validation the first is chosen, the mildest.

    Examples
    --------
    >>> {len(problems_of(shapes)) for shapes in MEMBERS.values()}
    {15}
    """
    alphas = FINE if len(shapes) == 1 else ALPHAS
    return [Problem(loss, aggregate, k, alpha, m) for loss, aggregate, k, m in shapes for alpha in alphas]


def _right(coef: Array, intercept: Array, parts: Division) -> tuple[Array, Array]:
    held, test = (
        ((coef @ X.T + intercept[:, None]) * y > 0).sum(axis=1) for X, y in zip(parts.X[1:], parts.y[1:], strict=True)
    )
    return held, test


def member(name: str, parts: Division) -> tuple[Array, Array]:
    """Of a member of the family."""
    found = solve(parts.X[0], parts.y[0], problems_of(MEMBERS[name]), max_iter=STEPS)
    return _right(found.coef, found.intercept, parts)


def huber(parts: Division) -> tuple[Array, Array]:
    """Logistic regression in which a row counts by min(1, c / loss), c a quantile of the losses, found again."""
    X, y = parts.X[0], parts.y[0]
    shares = np.repeat(QUANTILES, len(ALPHAS))[:, None]
    problems = [Problem(alpha=alpha) for _ in QUANTILES for alpha in ALPHAS]
    weights, value = np.ones((len(problems), len(y))), get_loss("logistic").value
    for _ in range(ROUNDS):
        found = solve(X, y, problems, max_iter=STEPS, folds=weights, fold_of=np.arange(len(problems)))
        losses = value(y * (found.coef @ X.T + found.intercept[:, None]))
        cuts = np.array([np.quantile(row, share) for row, share in zip(losses, shares, strict=True)])
        weights = np.minimum(1.0, cuts / np.maximum(losses, 1e-12))
    return _right(found.coef, found.intercept, parts)


def discriminant(parts: Division) -> tuple[Array, Array]:
    """Linear discriminant analysis with as many shrinkages as the others have settings."""
    models = [
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share).fit(parts.X[0], parts.y[0])
        for share in np.linspace(1, 0.001, len(FINE))
    ]
    coef, intercept = np.vstack([each.coef_ for each in models]), np.concatenate([each.intercept_ for each in models])
    return _right(np.nan_to_num(coef), np.nan_to_num(intercept), parts)


def searches(y: Array) -> dict[str, Any]:
    """Cross-validated searches, by name."""
    folds = max(2, min(5, int((y > 0).sum()), int((y < 0).sum())))
    return {
        PEER: LogisticRegressionCV(Cs=1 / np.array(ALPHAS), cv=folds),
        CLOSE_CV: CloseKClassifierCV(alphas=ALPHAS),
        FAMILY_CV: AggregateLossClassifierCV(aggregate=GUARDED, alphas=ALPHAS, ks=KS, ms=MS),
    }


def run_one(key: Row) -> Row:
    """Test accuracy of what is chosen, processor seconds, and what was chosen, for everyone."""
    parts = spoiled(key["name"], key["trouble"], key["split"])
    cut = clipped(parts)
    ways: dict[str, Callable[[], tuple[Array, Array]]] = {
        **{name: (lambda name=name: member(name, parts)) for name in MEMBERS},
        LDA: lambda: discriminant(parts), HUBER: lambda: huber(parts),
        CLIPPED: lambda: member(BASE, cut), BOTH: lambda: member("close decay", cut),
    }  # fmt: skip
    result: Row = {"accuracy": {}, "seconds": {}, "chosen": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notices on convergence and collinear columns
        for name, way in ways.items():
            began = time.process_time()
            held, test = way()
            result["seconds"][name] = round(time.process_time() - began, 4)
            result["chosen"][name] = best = int(held.argmax())
            result["accuracy"][name] = test[best] / parts.sizes[2]
        X, y = np.concatenate(parts.X[:2]), np.concatenate(parts.y[:2])
        for name, model in searches(y).items() if key["split"] < SEARCHED_SPLITS else ():
            began = time.process_time()
            model.fit(X, y)
            result["seconds"][name] = round(time.process_time() - began, 4)
            result["accuracy"][name] = float(model.score(parts.X[2], parts.y[2]))
            result["chosen"][name] = getattr(model, "aggregate_", "average")
    return result


def keys_of(settings: Settings) -> list[Row]:
    """Clean tables, spoiled ones split by split, the largest clean ones, and the last splits of the spoiled."""
    sizes = {name: dataset(name).X.shape for name in at_hand(["pmlb94"], MOST_VALUES, settings.sets)}
    early = [name for name, (n, d) in sizes.items() if n * d <= MOST_EARLY]
    few = [name for name, (n, d) in sizes.items() if n * d <= MOST_SPOILED and n >= FEWEST_ROWS]
    splits, troubles = range(settings.splits), [trouble for trouble in TROUBLES if trouble != CLEAN]
    dirty = [
        {"name": name, "trouble": trouble, "split": split}
        for split in splits[:SPOILED_SPLITS]
        for trouble in troubles
        for name in few
    ]
    return [
        *({"name": name, "trouble": CLEAN, "split": split} for split in splits for name in early),
        *(key for key in dirty if key["split"] < SEARCHED_SPLITS),
        *({"name": name, "trouble": CLEAN, "split": split} for name in sizes if name not in early for split in splits),
        *(key for key in dirty if key["split"] >= SEARCHED_SPLITS),
    ]


def run(settings: Settings) -> None:
    resume(settings, "family", keys_of(settings), run_one)


def table(settings: Settings) -> list[Row]:
    """A row for each (trouble, set) with everyone's mean accuracy, and one for each trouble with the seconds.

    Clean sets that have not all of their splits are left out; spoiled sets all have the splits that each of them has.
    """
    lines = [line for line in lines_of(settings, "family") if line["split"] < settings.splits]
    rows: list[Row] = []
    for trouble in TROUBLES:
        by_set: dict[str, list[Row]] = {}
        for line in lines:
            if line["trouble"] == trouble:
                by_set.setdefault(title(line["name"]), []).append(line)
        if not by_set:
            continue
        splits = settings.splits if trouble == CLEAN else min(map(len, by_set.values()))
        whole = {name: found[:splits] for name, found in by_set.items() if len(found) >= splits}
        facts = {"trouble": trouble, "splits": splits, "searched": min(splits, SEARCHED_SPLITS)}
        rows += [
            facts | {"set": name, "measure": "accuracy"} | {m: 100 * _mean(found, "accuracy", m) for m in METHODS}
            for name, found in sorted(whole.items())
        ]
        every = [line for found in whole.values() for line in found]
        rows.append(facts | {"set": "all", "measure": "seconds"} | {m: _mean(every, "seconds", m) for m in METHODS})
    return rows


def _mean(lines: Sequence[Row], measure: str, method: str) -> float:
    return float(np.mean([line[measure][method] for line in lines if method in line[measure]]))


def page(rows: list[Row], figure: Path) -> str:
    """The page, with what only this file knows."""
    run_clean = {row["set"] for row in rows if row["trouble"] == CLEAN and row["measure"] == "accuracy"}
    left_out = [title(name) for name in SUITES["pmlb94"] if title(name) not in run_clean]
    facts = {
        "troubles": "5 % of the rows added far beyond the other class, with the wrong label; 20 % of the labels "
        "flipped; 30 % of the labels of the class +1 flipped; four in five rows of the smaller class gone; every "
        "fifth row doubled with the other label (copies of negatives, at most half of them). "
        f"These are the sets of at least {FEWEST_ROWS} rows and at most {MOST_SPOILED:,} values; neither sets nor "
        "settings were chosen by results.",
        "settings": f"Every member has {len(FINE)} settings, {STEPS} steps and the logistic loss unless it says "
        f"otherwise: {len(ALPHAS)} alphas from {ALPHAS[-1]:g} to {ALPHAS[0]:g} for each of three shapes ({_shapes()}), "
        f"or {len(FINE)} alphas of the same range where there is no shape. So have the yardsticks: "
        f"{LDA} with {len(FINE)} shrinkages, {HUBER} (logistic regression in which a row counts by c / loss where its "
        f"loss exceeds c, the {', '.join(f'{q:g}' for q in QUANTILES)} quantile, found {ROUNDS} times), and columns "
        "clipped at three robust deviations of the training part before average and before close decay. The "
        "validation part chooses; of equals the mildest. The guard over close-k is `CloseKClassifierCV`, that over the "
        f"family `AggregateLossClassifierCV` over {', '.join(GUARDED)} with k of {', '.join(map(str, KS))} and m of "
        f"{', '.join(map(str, MS))}, both with {len(ALPHAS)} alphas and the default guard; so has {PEER}.",
        "count": str(len(FINE)),
        "not_run": f"Clean sets without {SPLITS} splits: {', '.join(left_out) or 'none'} (sets of more than "
        f"{MOST_VALUES:,} values are not asked for). The superquantile without smoothing is average top-k. Not in the "
        "guard over the family: the superquantile, the human-aligned risk and losses other than the logistic one. No "
        "trees, no networks: [their pages](index.md).",
    }
    return write_page(rows, figure, members=(*MEMBERS, *YARDSTICKS), searches=SEARCHES, base=BASE, facts=facts)


def _shapes() -> str:
    def said(shape: Shape) -> str:
        _, aggregate, k, m = shape
        counts = [f"{name} {value:g}" for name, value in (("k", k), ("m", m)) if value is not None]
        return " ".join(counts) or aggregate

    return "; ".join(f"{name} {', '.join(map(said, shapes))}" for name, shapes in MEMBERS.items() if len(shapes) > 1)


EXPERIMENT = Experiment("family", run, table, page, splits=SPLITS)
