"""Measure the paper's four difficult cases on a data set, and estimate whether close-k is likely to help.

The cases are *imbalance* of the classes, many *easy* examples, *outliers* far on the wrong side of the boundary, and
*ambiguity*, that is, overlapping classes. Easy examples are identified by the losses of logistic regression, which have
a natural scale. Outliers and ambiguity are identified by the margins of close-k, because outliers tilt the boundary of
an average loss towards themselves, so that they are no longer far from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from .._names import Array
from ..aggregates import Count
from ..objective import Problem
from ..paired import paired
from .fitting import Options, Parts, fit_models, scores_of
from .multiclass import top_two_margins
from .race import hits
from .splits import make_splits
from .training import Training, check_training


@dataclass(frozen=True)
class Finding:
    """One of the four cases, with its value and a short interpretation."""

    case: str
    value: float
    reading: str


@dataclass(frozen=True)
class Diagnosis:
    """The result of :func:`diagnose`.

    ``imbalance`` is the share of the smallest class, and ``easy`` is the share of examples with almost no loss.
    ``outliers`` is the share of the sum of all absolute margins that belongs to examples far on the wrong side of the
    boundary. ``ambiguity`` is the error of close-k without the outliers, which measures the overlap near the boundary.

    ``gain`` is the cross-validated accuracy of close-k with k = 0.1, or of the aggregate named by ``tried``, minus the
    accuracy of logistic regression; neither model is tuned. ``standard_error`` is computed from paired examples, and
    ``likely_to_help`` states whether the gain exceeds 1.5 standard errors.
    """

    imbalance: Finding
    easy: Finding
    outliers: Finding
    ambiguity: Finding
    gain: float
    standard_error: float
    likely_to_help: bool
    tried: str = "close-k"

    def __str__(self) -> str:
        lines = [
            f"{finding.case:10} {finding.value:6.1%}  {finding.reading}"
            for finding in (self.imbalance, self.easy, self.outliers, self.ambiguity)
        ]
        verdict = "is likely to help" if self.likely_to_help else "shows no clear gain"
        search = "CloseKClassifierCV" if self.tried == "close-k" else "AggregateLossClassifierCV"
        lines.append(
            f"{self.tried} {verdict}: {100 * self.gain:+.1f} points over logistic regression in cross-validation "
            f"(standard error {100 * self.standard_error:.1f}); use {search} for a tuned comparison"
        )
        return "\n".join(lines)


def diagnose(
    X: Any, y: Any, sample_weight: Any = None, *, aggregate: str = "", k: Count = None, m: Count = None
) -> Diagnosis:
    """Measure the paper's four difficult cases and compare close-k, or another aggregate, with logistic regression.

    The columns of X (samples, features), dense or sparse, are scaled to unit variance first, so their units do not
    matter. ``aggregate``, for example ``"trimmed"`` or ``"tilted(-2)"``, replaces close-k and uses the counts k and m
    if it needs them. Printing the result shows a five-line table.

    Examples
    --------
    >>> X = np.concatenate([np.linspace(-2, 0, 100), np.linspace(0, 2, 100), np.linspace(-40, -20, 10)])[:, None]
    >>> found = diagnose(X, np.repeat([0, 1, 1], [100, 100, 10]))
    >>> found.likely_to_help, found.outliers.value > 0.2
    (True, True)
    """
    average, close = Problem("logistic", "average", None, 1.0), Problem("logistic", "close_decay", 0.1, 1.0)
    tried = Problem("logistic", aggregate, k, 1.0, m) if aggregate else close
    shell = BaseEstimator()
    training = check_training(shell, X, y, sample_weight, None)
    scaler = StandardScaler(with_mean=not sparse.issparse(training.X))
    # The variance of a constant column may be -1e-17 after rounding, and its root would cause a warning.
    with np.errstate(invalid="ignore"):
        scaled = scaler.fit_transform(training.X, sample_weight=training.mass / training.mass.max())
    training = check_training(shell, scaled, training.classes[training.codes], training.mass, None)
    options = Options(300, 1e-3, True, False, "ovr")
    losses = np.logaddexp(0, -_margins(training, average, options))
    findings = _findings(training, losses, _margins(training, close, options))
    split = make_splits(None, training, None, None, None, seed=1)
    folds = len(split)
    parts = Parts(split.group, split.train, np.tile(np.arange(folds), 2))
    models = fit_models(training, [average] * folds + [tried] * folds, options, parts=parts)
    gains = np.zeros(len(training.mass))
    for fold in range(folds):
        rows = np.flatnonzero(split.test[fold][split.group])
        pair = [fold, folds + fold]
        right = hits(training.X[rows], training.codes[rows], models.coef[pair], models.intercept[pair])
        gains[rows] = right[1].astype(float) - right[0]
    gain = paired(gains, training.mass, split.units(training, None))
    helps = gain.mean > max(gain.needed(1.5), 1e-12)
    error = min(gain.standard_error, 1.0)  # infinite if all rows are copies of one; a share cannot err by more than 1
    return Diagnosis(*findings, gain.mean, error, helps, aggregate or "close-k")


def _margins(training: Training, problem: Problem, options: Options) -> Array:
    """Return the margins (samples,) between the true class and the best other class."""
    model = fit_models(training, [problem], options)
    scores = scores_of(training.X, model.coef[0], model.intercept[0])
    scores = np.column_stack([-scores, scores]) / 2 if scores.shape[1] == 1 else scores
    return top_two_margins(scores, training.codes)


def _findings(training: Training, losses: Array, margins: Array) -> tuple[Finding, Finding, Finding, Finding]:
    mass = training.mass / training.mass.sum()
    smallest = float(np.bincount(training.codes, mass).min())
    easy = float(mass[losses < 0.1 * np.log(2)].sum())  # a tenth of the threshold: the margin exceeds 2.6
    far = margins < -3 * np.median(np.abs(margins))
    pull = mass * np.abs(margins)
    carried = float(pull[far].sum() / max(pull.sum(), 1e-300))
    mixed = float(mass[(margins <= 0) & ~far].sum())
    equal = 1 / len(training.classes)
    balance = "the classes are balanced" if smallest > 0.7 * equal else "in the smallest class: the class sizes differ"
    if smallest < 0.4 * equal:
        balance = "the smallest class is rare; an average loss is dominated by the others"
    easiness = "of the examples are easy" if easy > 0.2 else "few examples are trivially easy"
    if easy > 0.5:
        easiness = "most examples are easy but still influence an average loss"
    wrong = "of all margins lie far on the wrong side" + (", which affects an average" if carried > 0.05 else "")
    overlap = "are misclassified near the boundary" + (": the classes overlap" if mixed > 0.15 else "")
    return (
        Finding("imbalance", smallest, balance),
        Finding("easy", easy, easiness),
        Finding("outliers", carried, wrong),
        Finding("ambiguity", mixed, overlap),
    )
