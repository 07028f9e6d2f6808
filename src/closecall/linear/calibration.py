"""Calibrate probabilities on held-out scores with Platt's sigmoid or isotonic regression.

A calibrator is a plain array, so it can be saved. The shape is (2,) for a sigmoid (slope and offset) and (2, knots) for
isotonic regression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from .._names import Array
from ..objective import Problem
from .fitting import Options, Parts, exact_intercepts, fit_models, scores_of, within
from .splits import FOLDS, Splits
from .training import Training


def fit_sigmoid(scores: Array, positive: Array, mass: Array) -> Array:
    """Return Platt's slope and offset; smoothed targets (Platt 1999) keep both finite even for separable classes.

    Examples
    --------
    >>> slope, offset = fit_sigmoid(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0, 0, 1, 1]) > 0, np.ones(4))
    >>> bool(slope > 0), bool(abs(offset) < 1e-6)
    (True, True)
    """
    up, down = float(mass[positive].sum()), float(mass[~positive].sum())
    target = np.where(positive, (up + 1) / (up + 2), 1 / (down + 2))
    spread = max(float(np.sqrt(np.average(scores**2, weights=mass))), 1e-12)
    # Each example counts as a positive one with the share ``target`` of its mass, and as a negative one with the rest.
    both, labels = np.concatenate([scores, scores])[:, None] / spread, np.repeat([1, 0], len(scores))
    masses = np.concatenate([mass * target, mass * (1 - target)])
    plain = LogisticRegression(C=1e6, tol=1e-8, max_iter=1000).fit(both, labels, sample_weight=masses)
    return np.array([plain.coef_[0, 0] / spread, plain.intercept_[0]])


def fit_isotonic(scores: Array, positive: Array, mass: Array) -> Array:
    """Return the knots and values (2, knots) of an isotonic regression, which are interpolated linearly."""
    rising = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    rising.fit(scores, positive.astype(float), sample_weight=mass)
    return np.stack([rising.X_thresholds_, rising.y_thresholds_]).astype(float)


#: The methods that turn scores into probabilities.
CALIBRATIONS = {"sigmoid": fit_sigmoid, "isotonic": fit_isotonic}


def probabilities(calibrators: Sequence[Array] | None, scores: Array) -> Array:
    """Convert scores, with shape (samples, 1) for two classes, to probabilities with shape (samples, classes).

    Each score has its own calibrator, and the calibrated values are divided by their sum. Without calibrators, the
    softmax of the scores is returned.

    Examples
    --------
    >>> probabilities([np.array([1.0, 0.0])], np.array([[0.0]])).tolist()
    [[0.5, 0.5]]
    """
    if calibrators is None:
        return np.asarray(softmax(scores, axis=1))
    columns = [_apply(calibrator, scores[:, place]) for place, calibrator in enumerate(calibrators)]
    if len(columns) == 1:
        return np.column_stack([1 - columns[0], columns[0]])
    table = np.column_stack(columns)
    total = table.sum(axis=1, keepdims=True)
    return np.where(total > 0, table / np.where(total > 0, total, 1), 1 / table.shape[1])


def _apply(calibrator: Array, scores: Array) -> Array:
    if calibrator.ndim == 1:
        with np.errstate(over="ignore"):  # expit of an infinite number is 0 or 1
            return expit(calibrator[0] * scores + calibrator[1])
    return np.interp(scores, calibrator[0], calibrator[1])


def calibrate(
    method: Any, training: Training, problem: Problem, options: Options, *, exact: bool, random_state: Any,
    splits: Splits | None = None,
) -> list[Array]:  # fmt: skip
    """Return the calibrators for a setting, fitted to out-of-fold scores.

    The folds are stratified by default; ``splits``, if given, may separate groups or time periods instead. No fit is
    warm-started, because the model passed as a warm start may have been trained on the test rows.
    """
    if not isinstance(options.init, str):
        options = replace(options, init="least_squares")
    counts = np.bincount(training.codes)
    if counts.min() < 2:
        rare = training.classes[counts.argmin()]
        raise ValueError(f"class {rare!r} has only one example; calibration needs two or more of each class")
    if splits is None:
        splitter = StratifiedKFold(min(FOLDS, int(counts.min())), shuffle=True, random_state=random_state)
        group = np.empty(len(training.codes), dtype=int)
        for fold, (_, held) in enumerate(splitter.split(group, training.codes)):
            group[held] = fold
        test = np.eye(splitter.n_splits, dtype=bool)
        splits = Splits(group, ~test, test)
    folds, total = len(splits), float(training.mass.sum())
    parts = Parts(splits.group, splits.train, np.arange(folds))
    masses = [float(training.mass[train[splits.group]].sum()) for train in splits.train]
    problems = [within(problem, mass, total) for mass in masses]
    models = fit_models(training, problems, options, parts=parts)
    intercept = exact_intercepts(training, models.coef, options, parts=parts) if exact else models.intercept
    scores = np.full((len(training.codes), models.coef.shape[1]), np.nan)
    for fold in range(folds):
        held = splits.test[fold][splits.group]
        scores[held] = scores_of(training.X[held], models.coef[fold], intercept[fold])
    seen = np.isfinite(scores).all(axis=1)  # splits by time never test the earliest rows
    return fit_calibrators(method, scores[seen], training.codes[seen], training.weight[seen])


def fit_calibrators(method: str, scores: Array, codes: Array, weight: Array) -> list[Array]:
    """Return one calibrator for each column of out-of-sample scores (samples, 1 or classes).

    ``weight`` contains the sample weights without the class weights.
    """
    fit = CALIBRATIONS[method]
    columns = [1] if scores.shape[1] == 1 else range(scores.shape[1])
    return [fit(scores[:, place], codes == code, weight) for place, code in enumerate(columns)]
