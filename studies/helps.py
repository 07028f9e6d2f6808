"""When does close-k help? Gains over average against what can be measured beforehand, and a rule that is tested."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from closecall import diagnose
from closecall.data.suites import SUITES
from closecall.paper.scores import Scores, title

from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    dataset,
    division,
    lines_of,
    made_by,
    markdown,
    mean_error,
    resume,
    save_chart,
    signed,
    with_enough,
)
from .families import family
from .records import read_finished, scores

#: Close decay helps a set if its mean test accuracy is higher by this many points.
HELPS = 1.0
LOSS = "logistic"
#: Splits on whose training parts `diagnose` is asked; one is enough where there are more values than that.
ASKED, MANY = 3, 100_000

#: Column -> (what it is, whether it is known without tuning close-k). The rule may use what is known only.
FEATURES = {
    "trial": ("gain of close-k (k = 0.1 n) in `diagnose`'s own cross-validation, in standard errors", True),
    "ambiguity": ("`diagnose`: misclassified near the boundary", True),
    "easy": ("`diagnose`: share of easy examples", True),
    "outliers": ("`diagnose`: pull of outliers", True),
    "minority": ("share of the smaller class", True),
    "log_rows": ("log10 of the rows", True),
    "log_columns": ("log10 of the columns", True),
    "log_ratio": ("log10 of rows / columns", True),
    "train_error": ("training error of average (%)", True),
    "threshold": ("training error that moving average's threshold removes (points)", True),
    "average_error": ("validation error of average (%)", True),
    "k_share": ("chosen k*/n of close decay (median)", False),
    "validation": ("gain of close decay on the validation part (points)", False),
}
KNOWN = tuple(name for name, (_, known) in FEATURES.items() if known)


def ask(key: Row) -> Row:
    """What `diagnose` says of the training part of a split."""
    parts = division(key["name"], key["split"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = diagnose(parts.X[0], parts.y[0])
    return {
        "minority": found.imbalance.value, "easy": found.easy.value, "outliers": found.outliers.value,
        "ambiguity": found.ambiguity.value, "gain": found.gain, "error": found.standard_error,
        "likely": bool(found.likely_to_help),
    }  # fmt: skip


def run(settings: Settings) -> None:
    """Ask `diagnose` about every PMLB set whose gain is known, smallest first."""
    sizes = {name: dataset(name).X.size for name, _ in _cases(settings)}
    keys = [
        {"name": name, "split": split}
        for split in range(ASKED)
        for name in sorted(sizes, key=lambda name: sizes[name])
        if split == 0 or sizes[name] <= MANY
    ]
    resume(settings, "diagnose", keys, ask)


def _cases(settings: Settings) -> list[tuple[str, Row]]:
    """(data set, numbers), from the store if one is given and from the yardsticks' lines otherwise.

    From a store the protocol that has more finished sets is taken, ``sound`` if both have as many.
    """
    if settings.store is None:
        return _from_lines(lines_of(settings, "yardsticks"))
    finished = read_finished(settings.store)
    found = [scores(finished, "pmlb94", protocol, settings.splits) for protocol in ("sound", "paper")]
    best = max((each for each in found if each is not None), key=lambda each: len(each.datasets), default=None)
    if best is None:
        raise SystemExit(f"no PMLB set has {settings.splits} finished splits in the store")
    head = {"protocol": best.protocol}
    return [(name, head | _numbers(*_arrays(best, place))) for place, name in enumerate(best.datasets)]


def _arrays(found: Scores, place: int) -> tuple[dict[str, dict[str, Array]], Array]:
    methods = ("average", "close_decay", "average_exact_intercept")
    values = {
        method: {part: 100 * found.of(part, LOSS, (method,))[place, 0] for part in ("train", "validation", "test")}
        for method in methods
    }
    return values, found.of("k", LOSS, ("close_decay",))[place, 0]


def _from_lines(lines: Sequence[Row]) -> list[tuple[str, Row]]:
    by_name: dict[str, list[Row]] = {}
    for line in with_enough([line | {"set": line["name"]} for line in lines], 25):
        if title(line["name"]) in {title(name) for name in SUITES["pmlb94"]}:
            by_name.setdefault(line["name"], []).append(line["details"])
    cases = []
    for name, details in by_name.items():
        values = {
            method: {
                part: 100 * np.array([detail[method][i] for detail in details])
                for i, part in enumerate(("train", "validation", "test"))
            }
            for method in ("average", "close_decay", "average_exact_intercept")
        }
        numbers = _numbers(values, np.array([detail["close_decay"][3] for detail in details]))
        cases.append((name, {"protocol": "sound"} | numbers))
    return cases


def _numbers(values: dict[str, dict[str, Array]], k: Array) -> Row:
    average, close, moved = (values[m] for m in ("average", "close_decay", "average_exact_intercept"))
    gain, error = mean_error(close["test"] - average["test"])
    return {
        "splits": len(k), "gain": gain, "gain_se": error, "average_error": float(100 - average["validation"].mean()),
        "train_error": float(100 - average["train"].mean()),
        "threshold": float((moved["train"] - average["train"]).mean()),
        "validation": float((close["validation"] - average["validation"]).mean()), "k_share": float(np.median(k)),
    }  # fmt: skip


def table(settings: Settings) -> list[Row]:
    """One row for each data set: gain, and every feature."""
    asked: dict[str, list[Row]] = {}
    for line in lines_of(settings, "diagnose"):
        asked.setdefault(line["name"], []).append(line)
    rows = []
    for name, numbers in _cases(settings):
        if name not in asked:
            continue
        X = dataset(name).X
        said = {what: float(np.mean([line[what] for line in asked[name]]))
                for what in ("minority", "easy", "outliers", "ambiguity")}  # fmt: skip
        trial = float(np.mean([line["gain"] / max(line["error"], 1e-3) for line in asked[name]]))
        likely = float(np.mean([line["likely"] for line in asked[name]]))
        sizes = {"log_rows": float(np.log10(len(X))), "log_columns": float(np.log10(X.shape[1])),
                 "log_ratio": float(np.log10(len(X) / X.shape[1]))}  # fmt: skip
        rows.append({"set": title(name), "family": family(title(name))} | numbers | said | sizes
                    | {"trial": trial, "likely": likely})  # fmt: skip
    return sorted(rows, key=lambda row: row["set"])


# --- the rule, tested on families of data sets it has not seen


def best_stump(x: Array, y: Array) -> tuple[float, int, float]:
    """The threshold and direction (+1: above) on one number with the highest balanced accuracy, and that accuracy.

    Examples
    --------
    >>> best_stump(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, False, True, True]))
    (2.5, 1, 1.0)
    """
    values = np.unique(x)
    cuts = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    above = balanced(y, x > cuts[:, None])
    place, direction = (int(above.argmax()), 1) if above.max() >= 1 - above.min() else (int(above.argmin()), -1)
    return float(cuts[place]), direction, float(max(above[place], 1 - above[place]))


def balanced(y: Array, decided: Array) -> Array:
    """Balanced accuracy of decisions (..., sets) about y (sets,) or (..., sets).

    Examples
    --------
    >>> float(balanced(np.array([True, False, False]), np.array([True, True, False])))
    0.75
    """
    y = np.broadcast_to(y, decided.shape)
    hits = (decided & y).sum(axis=-1) / np.maximum(y.sum(axis=-1), 1)
    return (hits + (~decided & ~y).sum(axis=-1) / np.maximum((~y).sum(axis=-1), 1)) / 2


def auc(y: Array, score: Array) -> float:
    """Area under the ROC curve by ranks; NaN if there is one class only."""
    yes, no = int(y.sum()), int((~y).sum())
    if not yes or not no:
        return float("nan")
    return float((rankdata(score)[y].sum() - yes * (yes + 1) / 2) / (yes * no))


def _logistic_rule() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.3, class_weight="balanced"))


def _logistic_scores(train: Array, y: Array, test: Array) -> tuple[Array, Array]:
    model = _logistic_rule().fit(train, y)
    return model.decision_function(test), model.predict(test)


def _stump_scores(train: Array, y: Array, test: Array) -> tuple[Array, Array]:
    """The feature whose stump is best on the training sets, and its stump."""
    stumps = [best_stump(column, y) for column in train.T]
    place = max(range(len(stumps)), key=lambda j: (stumps[j][2], -j))
    cut, direction, _ = stumps[place]
    # On a common scale, so that scores of folds with different features can be ranked together.
    spread = max(float(train[:, place].std()), 1e-12)
    scores_ = direction * (test[:, place] - cut) / spread
    return scores_, scores_ > 0


def crossed(rows: Sequence[Row], columns: Sequence[str], fit: Callable[..., Any]) -> tuple[Array, Array]:
    """Out-of-family scores and decisions of a rule, each family being left out in turn."""
    X = np.array([[row[name] for name in columns] for row in rows], dtype=float)
    y = np.array([row["gain"] >= HELPS for row in rows])
    groups = np.array([row["family"] for row in rows])
    found, decided = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
    for train, test in LeaveOneGroupOut().split(X, y, groups):
        if y[train].all() or not y[train].any():
            continue
        found[test], decided[test] = fit(X[train], y[train], X[test])
    return found, decided


def measured(y: Array, score: Array, decided: Array, groups: Array, draws: int = 1000) -> Row:
    """AUC and balanced accuracy with 95 % bootstrap intervals over families."""
    rng, names = np.random.default_rng(0), np.unique(groups)
    members = [np.flatnonzero(groups == name) for name in names]
    samples = []
    for _ in range(draws):
        rows = np.concatenate([members[i] for i in rng.integers(0, len(names), len(names))])
        if y[rows].any() and not y[rows].all():
            samples.append((auc(y[rows], score[rows]), float(balanced(y[rows], decided[rows]))))
    low, high = np.quantile(np.array(samples), [0.025, 0.975], axis=0) if samples else np.full((2, 2), np.nan)
    return {
        "auc": auc(y, score), "auc_low": float(low[0]), "auc_high": float(high[0]),
        "balanced": float(balanced(y, decided)), "balanced_low": float(low[1]),
        "balanced_high": float(high[1]), "says_yes": int(decided.sum()), "right": int((decided & y).sum()),
    }  # fmt: skip


def rules(rows: Sequence[Row]) -> dict[str, Row]:
    """Every rule's out-of-sample measures; those that need no fitting are asked directly."""
    y = np.array([row["gain"] >= HELPS for row in rows])
    groups = np.array([row["family"] for row in rows])
    trial = np.array([row["trial"] for row in rows])
    likely = np.array([row["likely"] for row in rows])
    tuned = np.array([row["validation"] for row in rows])
    threshold = np.array([row["threshold"] for row in rows])
    candidates = {
        "always no": (np.zeros(len(y)), np.zeros(len(y), dtype=bool)),
        "`diagnose` says likely (majority of its splits)": (trial, likely > 0.5),
        "`diagnose`'s trial gain exceeds one standard error": (trial, trial > 1),
        "moving the threshold removes a point of training error": (threshold, threshold >= 1),
        "best single number, fitted": crossed(rows, KNOWN, _stump_scores),
        "logistic regression on all that is known, fitted": crossed(rows, KNOWN, _logistic_scores),
        "tuning it: a point better on the validation part": (tuned, tuned >= 1),
    }
    return {name: measured(y, score, decided, groups) for name, (score, decided) in candidates.items()}


def weights(rows: Sequence[Row]) -> list[tuple[str, float]]:
    """The logistic rule fitted on all sets: standardised coefficients, largest first."""
    X = np.array([[row[name] for name in KNOWN] for row in rows], dtype=float)
    y = np.array([row["gain"] >= HELPS for row in rows])
    if y.all() or not y.any():
        return []
    coef = _logistic_rule().fit(X, y)[-1].coef_[0]
    return sorted(zip(KNOWN, map(float, coef), strict=True), key=lambda pair: -abs(pair[1]))


def _correlation(rows: Sequence[Row], name: str, draws: int = 2000) -> tuple[float, float, float]:
    x, y = (np.array([row[column] for row in rows], dtype=float) for column in (name, "gain"))
    picked = np.random.default_rng(0).integers(0, len(x), (draws, len(x)))
    first, second = (rankdata(values[picked], axis=1) for values in (x, y))
    first, second = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (first, second))
    scale = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    found = ((first * second).sum(axis=1) / np.where(scale > 0, scale, 1))[scale > 0]
    low, high = np.quantile(found, [0.025, 0.975]) if len(found) else (np.nan, np.nan)
    centre = spearmanr(x, y).statistic if np.ptp(x) > 0 and np.ptp(y) > 0 else 0.0
    return float(centre), float(low), float(high)


def _chart(rows: Sequence[Row]) -> Any:
    import altair as alt

    values = [{"x": round(row["trial"], 2), "y": round(row["gain"], 2)} for row in rows]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_circle(size=28, color="#0072B2", opacity=0.6)
        .encode(
            x=alt.X("x:Q", title="trial gain in diagnose (standard errors)", axis=alt.Axis(grid=False)),
            y=alt.Y("y:Q", title="test gain of close decay (points)", axis=alt.Axis(grid=False)),
        )
        .properties(width=330, height=220)
    )


def page(rows: list[Row], figure: Path) -> str:
    save_chart(_chart(rows), figure)
    y = np.array([row["gain"] >= HELPS for row in rows])
    harmed = sum(row["gain"] <= -HELPS for row in rows)
    found = rules(rows)
    lines = [
        [name, f"{r['auc']:.2f} ({r['auc_low']:.2f} to {r['auc_high']:.2f})",
         f"{r['balanced']:.2f} ({r['balanced_low']:.2f} to {r['balanced_high']:.2f})",
         f"{r['right']} of {r['says_yes']}"]
        for name, r in found.items()
    ]  # fmt: skip
    correlations = []
    for name, (what, known) in FEATURES.items():
        rho, low, high = _correlation(rows, name)
        correlations.append([what, "yes" if known else "no", f"{signed(rho)} ({signed(low)} to {signed(high)})"])
    best = max((name for name in KNOWN), key=lambda name: abs(_correlation(rows, name, 10)[0]))
    cut, direction, _ = best_stump(np.array([row[best] for row in rows]), y)
    top = sorted(rows, key=lambda row: -row["gain"])
    shown = [
        [row["set"], signed(row["gain"], row["gain_se"]), f"{row['k_share']:.2f}", f"{row['average_error']:.1f}",
         signed(row["trial"], digits=1), f"{row['minority']:.0%}", f"{row['ambiguity']:.0%}"]
        for row in (*top[:12], *top[-5:])
    ]  # fmt: skip
    single = found["best single number, fitted"]
    return "\n".join(
        [
            "# When does close-k help?\n",
            f"{len(rows)} PMLB sets, {min(row['splits'] for row in rows):.0f} or more splits of the "
            f"{rows[0]['protocol']} "
            f"protocol, linear models, {LOSS} loss. Close decay is a point or more better than average on {y.sum()} of "
            f"them, a point or more worse on {harmed}; the mean gain is "
            f"{np.mean([row['gain'] for row in rows]):+.2f} points, the median "
            f"{np.median([row['gain'] for row in rows]):+.2f}.\n",
            "## A rule of thumb, and how far it goes\n",
            f"The number most correlated with the gain, of those known before tuning, is the "
            f"{FEATURES[best][0].replace('`', '')}: on all sets together the best cut is "
            f"{'above' if direction > 0 else 'below'} {cut:.2f}. Chosen and fitted on some families of data sets and "
            f"asked about the others, such a one-number rule has a balanced accuracy of {single['balanced']:.2f} (95 % "
            f"interval {single['balanced_low']:.2f} to "
            f"{single['balanced_high']:.2f}; 0.5 is chance). Versions of the same data (credit approval occurs four "
            "times, heart disease five) are always left out together. Rules that need no fitting are asked as they "
            "are.\n",
            markdown(["rule: close-k gains a point or more", "AUC", "balanced accuracy", "right of its yes"], lines),
            "\nThe logistic rule's standardised coefficients, fitted on all sets: "
            + ", ".join(f"{name} {signed(value)}" for name, value in weights(rows))
            + ".\n",
            "The last rule is not a prediction but the tuning itself: `CloseKClassifierCV` does that, with a guard. "
            "The features come from training parts of the same sets whose test parts give the gains, and the splits "
            "overlap: for a new sample of the same data the numbers would be a little lower. The cut at one standard "
            "error was added after a look at half of these sets, so its figures flatter it.\n",
            "## What goes with the gain\n",
            "Spearman's correlation of the gain with each number over the data sets (95 % bootstrap interval).\n",
            markdown(["number", "known before tuning", "correlation with the gain"], correlations),
            f"\n![Gain against the trial gain](beyond/{figure.name})\n",
            "## The largest gains and losses\n",
            markdown(
                ["data set", "gain ± standard error", "k*/n", "average's error (%)", "trial", "minority", "ambiguity"],
                shown,
            ),
            made_by("helps", " --store FOLDER"),
        ]
    )  # fmt: skip


EXPERIMENT = Experiment("helps", "When does close-k help?", run, table, page, splits=25, file="when.md")
