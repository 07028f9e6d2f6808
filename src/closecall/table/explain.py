"""Explain a prediction by the contribution of each column to the score, in the units of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from closecall.preprocessing import unsquash
from closecall.report.formats import Row
from closecall.table.read.columns import KINDS, texts

from .model import TableModel
from .preprocess import Preprocessor, Step


def explain(model: TableModel, frame: Any) -> tuple[Row, list[Row]]:
    """Explain the prediction for the first row of a frame.

    Parameters
    ----------
    model : TableModel
    frame : pandas frame (1 or more rows, columns)

    Returns
    -------
    head : dict
        ``prediction``, ``against`` (the other class, or the runner-up), ``score`` (the sum of ``start`` and all pulls;
        it is positive), ``start`` (the score of a typical row), ``probability`` or None, and ``adds_up``: if the model
        is not linear, a pull is how much the score would drop if the column had its usual value, and such pulls need
        not add up.
    pulls : list of dict
        For each column, the strongest pull first: ``column``, its ``value``, the ``usual`` one (median or most
        frequent), ``pull`` towards the prediction, ``per_unit`` (the effect of one more unit of a number, unless it is
        extreme) and ``flips_at`` (the number at which the other class would win).
    """
    row = frame.iloc[:1]
    winner, other, score, start, pulls = (_linear if model.linear else _changed)(model, row)
    classes = model.classifier.classes_.tolist()
    chance = float(model.probabilities(row)[0, winner]) if hasattr(model.classifier, "predict_proba") else None
    head = {
        "prediction": classes[winner], "against": classes[other], "score": score, "start": start,
        "probability": chance, "adds_up": model.linear,
    }  # fmt: skip
    return head, sorted(pulls, key=lambda each: -abs(each["pull"]))


Explained = tuple[int, int, float, float, list[Row]]


def _linear(model: TableModel, row: Any) -> Explained:
    """Return the winner, the runner-up, the score, the score of a typical row, and the pulls of a linear model."""
    classifier, recipe = model.classifier, model.recipe
    z = recipe.matrix(row)[0]
    scores = np.atleast_1d(classifier.decision_function(z[None])[0])
    if len(scores) == 1:
        sign = 1.0 if scores[0] > 0 else -1.0
        weights, start, winner = sign * classifier.coef_[0], sign * classifier.intercept_[0], int(sign > 0)
        other = 1 - winner
    else:
        other, winner = np.argsort(scores, kind="stable")[-2:].tolist()
        weights = classifier.coef_[winner] - classifier.coef_[other]
        start = classifier.intercept_[winner] - classifier.intercept_[other]
    score = float(weights @ z + start)
    usual = recipe.matrix(row.astype(object).where(row.isna() & row.notna(), None))[0]
    pulls = []
    for step, at in recipe.places():
        block = slice(at, at + step.width)
        pull = float(weights[block] @ (z[block] - usual[block]))
        pulls.append({**_about(step, row), "pull": pull, **_unit(step, weights[at], z[at], recipe, at, score)})
    return winner, other, score, float(start + float(weights @ usual)), pulls


def _changed(model: TableModel, row: Any) -> Explained:
    """Return the same for any classifier; a pull is the drop in its score if the column had its usual value."""
    steps, classes = model.recipe.steps, model.classifier.classes_.tolist()
    # The row itself, then without each column in turn (missing cells are filled in), then without all of them.
    changed = row.iloc[[0] * (len(steps) + 2)].reset_index(drop=True).astype(object)
    for place, step in enumerate(steps, 1):
        changed.loc[[place, len(steps) + 1], step.column.name] = None
    X = model.recipe.matrix(changed)
    scores = model.scores(X)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros(len(scores)), scores])
    winner = classes.index(str(np.asarray(model.classifier.predict(X[:1])).ravel()[0]))
    other = int(np.argmax(np.where(np.arange(len(classes)) == winner, -np.inf, scores[0])))
    lead = scores[:, winner] - scores[:, other]
    pulls = [
        {**_about(step, row), "pull": float(lead[0] - lead[place]), "per_unit": None, "flips_at": None}
        for place, step in enumerate(steps, 1)
    ]  # fmt: skip
    return winner, other, float(lead[0]), float(lead[-1]), pulls


def _about(step: Step, row: Any) -> Row:
    text = texts(row[step.column.name]).iloc[0]
    known = isinstance(text, str)
    return {"column": step.column.label, "value": text if known else "missing", "usual": _written(step, step.fill)}


def _unit(step: Step, weight: float, z: float, recipe: Preprocessor, at: int, score: float) -> Row:
    """Return the effect of one more unit of a number, and the value at which the other class would win, if any."""
    if step.levels or not weight:
        return {"per_unit": None if step.levels else 0.0, "flips_at": None}
    with np.errstate(over="ignore"):
        value = recipe.mean[at] + recipe.scale[at] * float(unsquash(np.array(z - score / weight), recipe.bound))
    return {
        "per_unit": float(weight / recipe.scale[at]),
        "flips_at": _written(step, value) if np.isfinite(value) else None,
    }


def _written(step: Step, value: Any) -> str:
    """Return a value in the format of the table, with days as dates."""
    return value if isinstance(value, str) else KINDS[step.column.kind].write(value, step.column.form)
