"""Explain a prediction by the contribution of each column to the score, with values in the units of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from closecall._names import Array
from closecall.preprocessing import unsquash
from closecall.report.formats import Row
from closecall.table.read.columns import KINDS, texts

from .measure import wide
from .model import TableModel
from .preprocess import Preprocessor, Step


def explain(model: TableModel, frame: Any) -> tuple[Row, list[Row]]:
    """Explain the prediction for the first row of a frame (1 or more rows, columns).

    The first result has ``prediction``, ``against`` (the other class, or the runner-up), ``score`` (positive; the sum
    of ``start`` and the ``pull`` of each column), ``start`` (the score of a typical row), ``probability`` or None, and
    ``adds_up``. If the model is not linear, ``adds_up`` is False: ``pull`` is then how much the score would drop if the
    column had its usual value, and these amounts need not add up. The second result lists for each column (largest
    ``pull`` first): ``column``, its ``value``, its ``usual`` value (median or mode), its ``pull`` towards the
    prediction and, for a numeric column, ``per_unit`` (the effect of increasing the value by 1, unless the value is
    extreme) and ``flips_at`` (the value at which the other class would win).
    """
    row, classes, steps = frame.iloc[:1], model.classifier.classes_.tolist(), model.recipe.places()
    usual = model.recipe.matrix(row.astype(object).where(row.isna() & row.notna(), None))  # missing cells are filled in
    # The row itself, then a copy with the usual value for each column, and a copy with all usual values.
    X = np.concatenate([np.repeat(model.recipe.matrix(row), len(steps) + 1, axis=0), usual])
    for place, (step, at) in enumerate(steps, 1):
        X[place, at : at + step.width] = usual[0, at : at + step.width]
    scores = wide(model.scores(X))
    winner = classes.index(str(np.asarray(model.classifier.predict(X[:1])).ravel()[0]))
    other = int(np.argmax(np.where(np.arange(len(classes)) == winner, -np.inf, scores[0])))
    lead = scores[:, winner] - scores[:, other]
    chance = float(model.probabilities(row)[0, winner]) if hasattr(model.classifier, "predict_proba") else None
    head = {
        "prediction": classes[winner], "against": classes[other], "score": float(lead[0]), "start": float(lead[-1]),
        "probability": chance, "adds_up": model.linear,
    }  # fmt: skip
    weights = None
    if model.linear:  # the effect on the winner's lead over the other class
        coef = model.classifier.coef_
        weights = coef[winner] - coef[other] if len(coef) > 1 else (winner - other) * coef[0]
    pulls = [
        {"column": step.column.label, "value": texts(row[step.column.name]).fillna("missing").iloc[0],
         "usual": _written(step, step.fill), "pull": float(lead[0] - lead[place]),
         **_unit(step, weights, X[0], model.recipe, at, lead[0])}
        for place, (step, at) in enumerate(steps, 1)
    ]  # fmt: skip
    return head, sorted(pulls, key=lambda each: -abs(each["pull"]))


def _unit(step: Step, weights: Array | None, z: Array, recipe: Preprocessor, at: int, score: float) -> Row:
    """Return the effect of increasing a number by 1, and the value at which the other class would win, or None."""
    if step.levels or weights is None or not weights[at]:
        return {"per_unit": None if step.levels or weights is None else 0.0, "flips_at": None}
    with np.errstate(over="ignore"):
        far = float(unsquash(np.array(z[at] - score / weights[at]), recipe.bound))
        value = recipe.mean[at] + recipe.scale[at] * far
        slope = float(weights[at] / recipe.scale[at])
    return {
        "per_unit": slope if np.isfinite(slope) else None,
        "flips_at": _written(step, value) if np.isfinite(value) else None,
    }


def _written(step: Step, value: Any) -> str:
    """Return a value in the format of the table, with days as dates."""
    return value if isinstance(value, str) else KINDS[step.column.kind].write(value, step.column.form)
