"""Why a row is predicted as it is: what each column adds to the score, in the units of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from closecall.report.formats import Row
from closecall.table.read.columns import DATES, texts

from .model import Step, TableModel

_DAYS = "datetime64[D]"


def explain(model: TableModel, frame: Any) -> tuple[Row, list[Row]]:
    """The prediction for the first row of a frame, and a record for each column, the strongest pull first.

    Parameters
    ----------
    model : TableModel
    frame : pandas frame (1 or more rows, columns)

    Returns
    -------
    head : dict
        ``prediction``, ``against`` (the other class, or the runner-up), ``score`` (what the pulls and ``start`` add up
        to: above 0 is the prediction's), ``start`` (the score of a row of averages), ``probability`` or None, and
        ``adds_up``: of a model that is not linear, a pull is what the score would lose if the column had its usual
        value, and such pulls need not add up.
    pulls : list of dict
        ``column``, its ``value``, the ``usual`` one (mean or most frequent), ``pull`` towards the prediction,
        ``per_unit`` (what one more of a number adds) and ``flips_at`` (the number at which the other class would win).
    """
    row = frame.iloc[:1]
    if not model.linear:
        return _without(model, row)
    classifier, recipe = model.classifier, model.recipe
    z = recipe.matrix(row)[0]
    classes = classifier.classes_.tolist()
    scores = np.atleast_1d(classifier.decision_function(z[None])[0])
    if len(classes) == 2:
        sign = 1.0 if scores[0] > 0 else -1.0
        weights, start, winner, other = sign * classifier.coef_[0], sign * classifier.intercept_[0], *_sides(sign)
    else:
        other, winner = np.argsort(scores, kind="stable")[-2:].tolist()
        weights = classifier.coef_[winner] - classifier.coef_[other]
        start = classifier.intercept_[winner] - classifier.intercept_[other]
    score = float(weights @ z + start)
    pulls, at = [], 0
    for step in recipe.steps:
        block = slice(at, at + step.width)
        at += step.width
        pulls.append(_pull(step, row, weights[block], z[block], recipe.scale[block], score))
    chance = model.probabilities(row)[0, winner] if hasattr(classifier, "predict_proba") else None
    head = {
        "prediction": classes[winner], "against": classes[other], "score": score, "start": float(start),
        "probability": None if chance is None else float(chance), "adds_up": True,
    }  # fmt: skip
    return head, sorted(pulls, key=lambda each: -abs(each["pull"]))


def _without(model: TableModel, row: Any) -> tuple[Row, list[Row]]:
    """The prediction of any classifier, and what its score loses with each column at its usual value."""
    steps, classes = model.recipe.steps, model.classifier.classes_.tolist()
    # The row as it is, once without each column (which is then filled in), and without all.
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
        {**_pull(step, row, np.zeros(step.width), np.zeros(step.width), np.ones(step.width), 0.0),
         "pull": float(lead[0] - lead[place]), "per_unit": None, "flips_at": None}
        for place, step in enumerate(steps, 1)
    ]  # fmt: skip
    chance = model.probabilities(row)[0, winner] if hasattr(model.classifier, "predict_proba") else None
    head = {
        "prediction": classes[winner], "against": classes[other], "score": float(lead[0]), "start": float(lead[-1]),
        "probability": None if chance is None else float(chance), "adds_up": False,
    }  # fmt: skip
    return head, sorted(pulls, key=lambda each: -abs(each["pull"]))


def _sides(sign: float) -> tuple[int, int]:
    return (1, 0) if sign > 0 else (0, 1)


def _pull(step: Step, row: Any, weights: Any, z: Any, scale: Any, score: float) -> Row:
    text = texts(row[step.column.name]).iloc[0]
    known = isinstance(text, str)
    record: Row = {
        "column": step.column.name, "value": text if known else "missing", "usual": _written(step, step.fill),
        "pull": float(weights @ z), "per_unit": None, "flips_at": None,
    }  # fmt: skip
    if not step.levels:
        slope = float(weights[0] / scale[0])
        record["per_unit"] = slope
        if slope:
            # z is measured from the mean, which is also what a missing number becomes.
            now = float(z[0] * scale[0]) + float(step.fill)
            record["flips_at"] = _written(step, now - score / slope)
    return record


def _written(step: Step, value: Any) -> str:
    """A value as the table writes it: days as dates."""
    if step.column.kind != "date":
        return value if isinstance(value, str) else f"{value:.6g}"
    if not np.isfinite(value) or abs(value) > 1e6:
        return ""
    day = np.datetime64(0, "D") + round(value)
    form = step.column.form
    plain = form in DATES[1:] and "%H" not in form
    return day.astype(_DAYS).item().strftime(form) if plain else str(day)
