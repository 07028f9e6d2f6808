"""Which of the paper's four difficult cases a data set shows, in numbers, and whether close-k is likely to help.

The cases: *imbalance* of the classes, a mass of *easy* examples, *outliers* far on the wrong side, and *ambiguity*,
that is, overlapping classes. Easiness is measured by the losses of logistic regression, which have a scale of their
own; outliers and ambiguity by the margins of close-k, because outliers tilt an average's boundary towards themselves
and so escape notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from .._names import Array
from ..aggregates import Count, get_aggregate
from ..objective import Problem
from ..paired import paired
from .fitting import Options, Parts, fit_models, scores_of
from .multiclass import top_two_margins
from .race import hits
from .splits import make_splits
from .training import Training, check_training

#: An outlier is misclassified by more than this many median margins.
FAR = 3.0
#: An example is easy if its loss is under a tenth of the threshold log 2: its margin exceeds 2.6.
EASY_SHARE = 0.1
CLOSE = Problem("logistic", "close_decay", 0.1, 1.0)
AVERAGE = Problem("logistic", "average", None, 1.0)


@dataclass(frozen=True)
class Finding:
    """One measured case: its number, and a line that interprets it."""

    case: str
    value: float
    reading: str


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` found.

    Parameters
    ----------
    imbalance : Finding
        The mass of the smaller class (of the smallest, with more than two).
    easy : Finding
        The share of examples with almost no loss.
    outliers : Finding
        The share of the total margin size that belongs to examples far on the wrong side: how hard they pull.
    ambiguity : Finding
        The error of close-k without the outliers: the overlap near the boundary.
    gain : float
        Cross-validated accuracy of close-k (k = 0.1, or what was tried instead) minus that of logistic regression, both
        untuned.
    standard_error : float
        Standard error of the gain, paired by examples.
    likely_to_help : bool
        Whether the gain exceeds 1.5 standard errors.
    tried : str
        The aggregate that was tried.
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
            f"(standard error {100 * self.standard_error:.1f}); {search} decides with tuning"
        )
        return "\n".join(lines)


def diagnose(
    X: Any, y: Any, sample_weight: Any = None, *, aggregate: str = "", k: Count = None, m: Count = None
) -> Diagnosis:
    """Measure the paper's four difficult cases and try close-k, or an aggregate, once against logistic regression.

    Parameters
    ----------
    X : array or sparse matrix (samples, features)
        Scaled to unit variance here; units do not matter.
    y : array (samples,)
    sample_weight : array (samples,), optional
    aggregate : str
        What to try instead of close-k: any aggregate, such as ``"trimmed"`` or ``"tilted(-2)"``.
    k, m : int, float or None
        The counts of that aggregate, if it has any.

    Returns
    -------
    Diagnosis
        ``str`` gives a table of five lines.

    Examples
    --------
    >>> X = np.concatenate([np.linspace(-2, 0, 100), np.linspace(0, 2, 100), np.linspace(-40, -20, 10)])[:, None]
    >>> found = diagnose(X, np.repeat([0, 1, 1], [100, 100, 10]))
    >>> found.likely_to_help, found.outliers.value > 0.2
    (True, True)
    """
    tried = Problem("logistic", aggregate, k, 1.0, m) if aggregate else CLOSE
    get_aggregate(tried.aggregate)  # an unknown name is said before anything is fitted
    shell = BaseEstimator()
    training = check_training(shell, X, y, sample_weight, None)
    scaler = StandardScaler(with_mean=not sparse.issparse(training.X))
    # The variance of a constant column may come out as -1e-17; the scaler then takes 1 for its root, and warns before.
    with np.errstate(invalid="ignore"):
        scaled = scaler.fit_transform(training.X, sample_weight=training.mass / training.mass.max())
    training = check_training(shell, scaled, training.classes[training.codes], training.mass, None)
    options = Options(300, 1e-3, True, False, "ovr")
    easy, margins = _logistic_losses(training, options), _close_margins(training, options)
    split = make_splits(None, training, None, None, None, seed=1)
    folds = len(split)
    parts = Parts(split.group, split.train, np.tile(np.arange(folds), 2))
    models = fit_models(training, [AVERAGE] * folds + [tried] * folds, options, parts=parts)
    gains = np.zeros(len(training.mass))
    for fold in range(folds):
        rows = np.flatnonzero(split.test[fold][split.group])
        pair = [fold, folds + fold]
        right = hits(training.X[rows], training.codes[rows], models.coef[pair], models.intercept[pair])
        gains[rows] = right[1].astype(float) - right[0]
    gain = paired(gains, training.mass, split.units(training, None))
    helps = gain.mean > max(gain.needed(1.5), 1e-12)
    error = min(gain.standard_error, 1.0)  # what copies of one row say is worth nothing; no share is less certain
    return Diagnosis(*_findings(training, easy, margins), gain.mean, error, helps, aggregate or "close-k")


def _scores(training: Training, problem: Problem, options: Options) -> Array:
    model = fit_models(training, [problem], options)
    scores = scores_of(training.X, model.coef[0], model.intercept[0])
    return np.column_stack([-scores, scores]) / 2 if scores.shape[1] == 1 else scores


def _logistic_losses(training: Training, options: Options) -> Array:
    return np.logaddexp(0, -top_two_margins(_scores(training, AVERAGE, options), training.codes)[0])


def _close_margins(training: Training, options: Options) -> Array:
    return top_two_margins(_scores(training, CLOSE, options), training.codes)[0]


def _findings(training: Training, losses: Array, margins: Array) -> tuple[Finding, Finding, Finding, Finding]:
    mass = training.mass / training.mass.sum()
    smallest = float(np.bincount(training.codes, mass).min())
    easy = float(mass[losses < EASY_SHARE * np.log(2)].sum())
    far = margins < -FAR * np.median(np.abs(margins))
    pull = mass * np.abs(margins)
    carried = float(pull[far].sum() / max(pull.sum(), 1e-300))
    mixed = float(mass[(margins <= 0) & ~far].sum())
    return (
        Finding("imbalance", smallest, _balance(smallest, len(training.classes))),
        Finding("easy", easy, _read(easy > 0.5, "most examples are easy and still pull on an average loss",
                                    _read(easy > 0.2, "of the examples are easy", "few examples are trivially easy"))),
        Finding("outliers", carried, _read(carried > 0.05,
                "of all margins lie far on the wrong side and pull", "of all margins lie far on the wrong side")),
        Finding("ambiguity", mixed, _read(mixed > 0.15,
                "are misclassified near the boundary: the classes overlap", "are misclassified near the boundary")),
    )  # fmt: skip


def _balance(smallest: float, classes: int) -> str:
    """The smallest class relative to an equal share: rare below two fifths of it, balanced above seven tenths."""
    if smallest < 0.4 / classes:
        return "the smallest class is rare; an average loss is ruled by the others"
    return "the classes are balanced" if smallest > 0.7 / classes else "the smallest class: the classes are uneven"


def _read(shows: bool, yes: str, no: str) -> str:
    return yes if shows else no
