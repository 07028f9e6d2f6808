"""Estimate the held-out performance of the model of ``closecall fit``, and state why it was chosen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from closecall.aggregates import get_aggregate
from closecall.linear.base import LinearClassifier
from closecall.paired import FEWEST
from closecall.report.formats import Row
from closecall.table.read.sheet import Sheet

from .compare import LEAST, ComparePlan, run_splits
from .conclude import Conclusion, conclude
from .contenders import MAJORITY, contender_of
from .divide import Order
from .measure import Metric
from .train import FITTED, contender
from .tuning import How

#: The least number of rows for which the splits of an estimate run in separate processes.
LARGE = 20_000


def estimate_words(estimate: Conclusion) -> str:
    """Return an estimate as a sentence."""
    metric, found, words = estimate.metric, estimate.found, []
    distinct = {found[name].label: found[name] for name in (estimate.plain, FITTED)}
    for result in reversed(distinct.values()):
        mean, low, high = (f"{each:.{metric.rough}f}" for each in (metric.shown(result.mean), *result.ends(metric)))
        words.append(f"{mean} ({low} to {high}) {result.label}")
    words.append(f"{metric.shown(found[MAJORITY].mean):.{metric.rough}f} always {estimate.majority!r}")
    splits = len(found[FITTED].values)
    return f"cross-validated {metric.label}, {splits} splits, 95 % intervals: {'; '.join(words)}"


def estimate_record(estimate: Conclusion) -> Row:
    """Return an estimate as a record for JSON output."""
    metric, found = estimate.metric, estimate.found
    record: Row = {"metric": metric.name, "splits": len(found[FITTED].values)}
    for name, result in (("model", found[FITTED]), ("plain", found[estimate.plain]), ("majority", found[MAJORITY])):
        record[name] = {"label": result.label, "mean": metric.plain(result.mean), **result.record(metric)}
    return record


def why_none(table: Sheet, splits: int, order: Order) -> str:
    """Return why held-out rows cannot be used to evaluate a model; empty if they can or no estimate was requested."""
    if splits >= 2 and order.few:
        return f"no estimate: {order.few} groups are too few to estimate an error; {FEWEST} are needed"
    rare, count = min(Counter(map(str, table.labels)).items(), key=lambda each: each[1])
    if splits < 2 or count >= LEAST:
        return ""
    return f"no estimate: the class {rare!r} has {count} rows, and {LEAST} are needed to test the model"


def estimate(table: Sheet, model: str, how: How, order: Order, splits: int, seed: int) -> Conclusion | None:
    """Evaluate a model alongside logistic regression and the largest class on the same held-out rows.

    Return None if no estimate was requested (fewer than two splits) or none is possible; see :func:`why_none`.
    """
    if splits < 2 or why_none(table, splits, order):
        return None
    jobs = 0 if len(table.labels) >= LARGE else 1
    plan = ComparePlan(how.loss, how.multiclass, how.metric, how.squashed, splits=splits, seed=seed, jobs=jobs)
    contenders = (contender(model, how), contender_of(plan.plain[0]))
    return conclude(table, list(run_splits(table, plan, order, contenders)), plan, contenders, order)


def chosen_words(classifier: Any, model: str, metric: Metric) -> str:
    """Return a sentence on the chosen setting and the reason for it; ``metric`` is the one used in the search."""
    setting = getattr(classifier, "setting_", "")
    if not isinstance(classifier, LinearClassifier):
        return f"chosen: {type(classifier).__name__} as requested by --model {model}, {setting}"
    counts = f"alpha = {getattr(classifier, 'alpha_', getattr(classifier, 'alpha', 0)):g}"
    if not hasattr(classifier, "best_params_"):
        kind = classifier.aggregate.replace("_", " ")
        words = f"chosen: {kind} of the {classifier.loss} loss with {counts}, as requested by --model {model}"
        return f"{words}; {setting}" if setting else words
    kind = classifier.aggregate_.replace("_", " ") + _details(classifier.best_params_)
    if classifier.k_ < classifier.n_training_mass_:
        counts = f"k = {classifier.k_:g} of {classifier.n_training_mass_:g} rows, {counts}"
    steps = classifier.guard_report_["comparisons"]
    if not steps:
        return f"chosen: {kind} with {counts}, the best mean score of all settings"
    won = [step for step in steps if step["taken"]]
    step = won[-1] if won else max(steps, key=lambda each: each["gain"])
    rival, held = (_kind(step[side]) for side in ("challenger", "reference"))
    found, needed = (metric.gain(step[name]) for name in ("gain", "needed"))
    gain = f"{found:+.{metric.rough}f} {metric.unit} (a clear gain needs {needed:.{metric.rough}f})"
    lost = f"{rival} is not clearly better: {gain}" if step["gain"] > 0 else "nothing else is better"
    reason = f"it is better than {held}: {gain}" if won else lost
    return f"chosen: {kind} with {counts}, because {reason}"


def _kind(setting: Row) -> str:
    softmax = setting["multiclass"] == "softmax" and get_aggregate(setting["aggregate"]).plain
    name = "multinomial logistic regression" if softmax else str(setting["aggregate"]).replace("_", " ")
    return name + _details(setting)


def _details(setting: Row) -> str:
    exact, without = setting["exact_intercept"], setting["without_outliers"]
    return (", exact intercept" if exact else "") + (", without outliers" if without else "")
