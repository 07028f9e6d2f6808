"""The held-out performance of the model of ``closecall fit``, and why it was chosen, in sentences."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from closecall.aggregates import get_aggregate
from closecall.linear.base import LinearClassifier
from closecall.paired import FEWEST
from closecall.report.formats import Row
from closecall.table.read.sheet import Sheet

from .compare import LEAST, ComparePlan, run_splits
from .conclude import Conclusion, Result, conclude
from .contenders import MAJORITY, built_in, peer_of
from .divide import Order
from .measure import Metric
from .train import FITTED, How, contender

#: Rows from which the splits of an estimate are worth processes of their own.
LARGE = 20_000


@dataclass(frozen=True)
class Estimate:
    """The model, logistic regression and the largest class on the same held-out rows."""

    model: Result
    plain: Result
    majority: Result
    conclusion: Conclusion

    def lines(self) -> list[str]:
        """The estimate in words."""
        metric, splits = self.conclusion.metric, len(self.model.values)
        words = [f"{self._shown(self.model)} {self.model.label}"]
        if self.plain.method != self.model.method and self.plain.label != self.model.label:
            words.append(f"{self._shown(self.plain)} {self.plain.label}")
        words.append(f"{metric.shown(self.majority.mean):.{metric.rough}f} always {self.conclusion.majority!r}")
        return [f"cross-validated {metric.label}, {splits} splits, 95 % intervals: {'; '.join(words)}"]

    def _shown(self, result: Result) -> str:
        from .content import ends

        (low, high), metric = ends(result, self.conclusion), self.conclusion.metric
        return f"{metric.shown(result.mean):.{metric.rough}f} ({low:.{metric.rough}f} to {high:.{metric.rough}f})"

    def record(self) -> Row:
        """The estimate for programs."""
        metric = self.conclusion.metric
        found: Row = {"metric": metric.name, "splits": len(self.model.values)}
        for name, result in (("model", self.model), ("plain", self.plain), ("majority", self.majority)):
            low, high = sorted(metric.plain(result.mean + sign * result.half_width) for sign in (-1, 1))
            found[name] = {"label": result.label, "mean": metric.plain(result.mean), "low": low, "high": high}
        return found


def why_none(table: Sheet, splits: int, order: Order) -> str:
    """Why a model cannot be evaluated on held-out rows; empty if it can, or if this was not requested."""
    if splits >= 2 and order.few:
        return f"no estimate: {order.few} groups are too few for an error, {FEWEST} are needed"
    rare, count = min(Counter(map(str, table.labels)).items(), key=lambda each: each[1])
    if splits < 2 or count >= LEAST:
        return ""
    return f"no estimate: the class {rare!r} has {count} rows, and {LEAST} are needed to test the model"


def estimate(
    table: Sheet, model: str, how: How, order: Order, splits: int, seed: int = 0, squashed: bool = True
) -> Estimate | None:
    """Evaluate a model next to logistic regression and the largest class; None if not requested (fewer than two splits)
    or a class is too rare.
    """
    if splits < 2 or why_none(table, splits, order):
        return None
    base = peer_of(how.loss)
    jobs = 0 if len(table.labels) >= LARGE else 1
    plan = ComparePlan(splits, (how.loss,), how.multiclass, how.metric, aggregates=False, seed=seed, jobs=jobs,
                       squashed=squashed)  # fmt: skip
    contenders = (contender(model, how), built_in(how.loss, how.multiclass)[base])
    found = list(run_splits(table, plan, order, contenders))
    conclusion = conclude(table, found, plan, contenders, plain=base, order=order)
    by_name = conclusion.found
    return Estimate(by_name[FITTED], by_name[base], by_name[MAJORITY], conclusion)


def chosen_words(classifier: Any, model: str, metric: Metric) -> str:
    """One sentence on what was chosen, and why; the search used that metric."""
    setting = getattr(classifier, "setting_", "")
    if not isinstance(classifier, LinearClassifier):
        return f"chosen: {type(classifier).__name__} as requested by --model {model}, {setting}"
    counts = f"alpha = {getattr(classifier, 'alpha_', getattr(classifier, 'alpha', 0)):g}"
    if not hasattr(classifier, "best_params_"):
        kind = classifier.aggregate.replace("_", " ")
        words = f"chosen: {kind} of the {classifier.loss} loss with {counts}, as requested by --model {model}"
        return f"{words}; {setting}" if setting else words
    taken = classifier.best_params_
    kind = classifier.aggregate_.replace("_", " ") + (", exact intercept" if taken["exact_intercept"] else "")
    if classifier.k_ < classifier.n_training_mass_:
        counts = f"k = {classifier.k_:g} of {classifier.n_training_mass_:g} rows, {counts}"
    steps = classifier.guard_report_["comparisons"]
    if not steps:
        return f"chosen: {kind} with {counts}, the best mean score of all settings"
    won = [step for step in steps if step["taken"]]
    step = won[-1] if won else max(steps, key=lambda each: each["gain"])
    rival, held = (_kind(step[side]) for side in ("challenger", "reference"))
    found, needed = (metric.gain(step[name]) for name in ("gain", "needed"))
    gain = f"{found:+.{metric.rough}f} {metric.unit}, where {needed:.{metric.rough}f} are needed for a clear gain"
    if won:
        reason = f"it gains over {held}: {gain}"
    else:
        reason = f"{rival} does not clearly gain over it: {gain}" if step["gain"] > 0 else "nothing else gains over it"
    return f"chosen: {kind} with {counts}, because {reason}"


def _kind(setting: Row) -> str:
    name = str(setting["aggregate"]).replace("_", " ")
    form = (
        "multinomial logistic regression"
        if setting["multiclass"] == "softmax" and get_aggregate(setting["aggregate"]).plain
        else name
    )
    return f"{form}, exact intercept" if setting["exact_intercept"] else form
