"""Preprocessing and classifier as one model, saved in one file without pickle.

The preprocessing is plain data, stored as a fitted attribute of the classifier, so
:mod:`closecall.linear.persistence` saves and checks both together.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.linear.base import LinearClassifier
from closecall.linear.persistence import TABLE, read_model
from closecall.table.read.columns import Column, nearest, quoted, texts
from closecall.table.read.dataset import DataError
from closecall.table.read.sheet import Sheet

from . import keep
from .divide import Order
from .measure import wide
from .preprocess import Preprocessor, Step, finite
from .train import train
from .tuning import How, scores_of

FORMAT = 1
#: If a numeric column has at least this many values and none is a number, it is not the column seen in training.
FEW = 3
#: The number of training rows that a model remembers.
REMEMBERED = 2000


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted model for tables: how to read the columns, and a classifier whose classes are the labels as text.

    ``seen`` (rows,), of type uint64, holds hashes of training rows: the smallest of those that occur only once.
    """

    target: str
    recipe: Preprocessor
    classifier: Any
    seen: Array = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    @classmethod
    def fit(
        cls, table: Sheet, model: str = "close_k", how: How | None = None, order: Order | None = None
    ) -> TableModel:
        """Fit the preprocessing and a model from :data:`closecall.table.train.MODELS` to a table.

        The folds of a search respect the groups or times in ``order``.
        """
        how, order = how or How(), order or Order()
        recipe = Preprocessor.fit(table.frame, table.columns, how.squashed)
        X, y = recipe.matrix(table.frame), np.asarray(table.labels, dtype=str)
        rows = np.argsort(order.values, kind="stable") if order.kind == "time" else np.arange(len(y))
        if order.kind:
            cv, groups = order.inner(np.unique(y, return_inverse=True)[1], rows)
            how = replace(how, cv=cv, groups=groups)
        marks, times = np.unique(marks_of(X, y), return_counts=True)
        return cls(table.target, recipe, train(model, X[rows], y[rows], how), marks[times == 1][:REMEMBERED])

    @property
    def linear(self) -> bool:
        """Whether the scores are sums over the columns."""
        return isinstance(self.classifier, LinearClassifier)

    @property
    def coefficients(self) -> list[dict[str, Any]]:
        """Every coefficient by name, largest first, per standard deviation and per unit; empty for nonlinear models."""
        if not self.linear:
            return []
        classes = self.classifier.classes_.tolist()
        rows = [classes[1]] if len(classes) == 2 else classes
        found = [
            {"name": name, "class": label, "coefficient": float(value), "per_unit": float(value / scale)}
            for label, row in zip(rows, self.classifier.coef_, strict=True)
            for name, value, scale in zip(self.recipe.names, row, self.recipe.scale, strict=True)
        ]
        return sorted(found, key=lambda each: -abs(each["coefficient"]))

    def learnt_from(self, frame: Any, labels: Array) -> tuple[int, int]:
        """Count the labelled rows that can be compared with the hashes of the training rows, and those that match."""
        if not len(self.seen) or not len(frame):
            return 0, 0
        marks = marks_of(self.recipe.matrix(frame), labels.astype(str))
        comparable = marks <= self.seen[-1] if len(self.seen) == REMEMBERED else np.ones(len(marks), dtype=bool)
        return int(comparable.sum()), int(np.isin(marks[comparable], self.seen).sum())

    @np.errstate(over="ignore", invalid="ignore")
    def probabilities(self, frame: Any) -> Array:
        """Return calibrated probabilities (rows, classes); raise an error if the classifier has none."""
        if not hasattr(self.classifier, "predict_proba"):
            why = "it was fitted by an earlier release" if self.linear else "its classifier has none"
            raise DataError(f"the model has no probabilities: {why}; fit it again, for example with --model close_k")
        if not len(frame):
            return np.empty((0, len(self.classifier.classes_)))
        return finite(self.classifier.predict_proba(self.recipe.matrix(frame)), "probabilities")

    @np.errstate(over="ignore", invalid="ignore")
    def predict(self, frame: Any, strange: Counter[str] | None = None) -> tuple[Array, Array]:
        """Return labels and scores (rows,): for two classes, the second class's score; for more, the top-two margin."""
        if not len(frame):
            return np.empty(0, dtype=str), np.empty(0)
        X = self.recipe.matrix(frame, strange)
        scores = self.scores(X)
        if self.linear:
            # Labels are stored as objects, so a long label is stored once, however many rows have it.
            classes = self.classifier.classes_.astype(object)
            labels = classes[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        else:
            labels = np.asarray(self.classifier.predict(X)).ravel()
            labels = labels if labels.dtype == object else labels.astype(str)
        if scores.ndim == 1:
            return labels, scores
        best = np.partition(scores, -2, axis=1)
        return labels, best[:, -1] - best[:, -2]

    @np.errstate(over="ignore", invalid="ignore")
    def scores(self, X: Array) -> Array:
        """Return scores (rows,) of the second of two classes, or (rows, classes).

        Linear scores are sums over the columns; others are log odds or log probabilities if the classifier has them.
        """
        if self.linear:
            return self.classifier.decision_function(X)
        found = wide(scores_of(self.classifier, X)[0])
        return finite(found[:, 1] - found[:, 0] if found.shape[1] == 2 else found, "scores")

    def check_numbers(self, frame: Any, strange: Counter[str]) -> None:
        """Raise an error if a column that contained numbers or dates in training now contains none."""
        for step in self.recipe.steps:
            name = step.column.name
            if step.levels or strange[name] < FEW:
                continue
            known = texts(frame[name]).dropna()
            if strange[name] >= len(known):
                found = f"contained {step.column.kind}s in training but has none here (it has {known.iloc[0][:40]!r})"
                raise DataError(f"the column {name!r} {found}; pass the column that the model was trained on")

    def check(self, names: Sequence[str], known: Sequence[str] = ()) -> tuple[str, ...]:
        """Return notes on unused columns (except ``known`` ones); raise an error that names any missing columns."""
        wanted = [step.column.name for step in self.recipe.steps]
        new = [name for name in names if name not in (*wanted, *known, self.target)]
        if missing := [name for name in wanted if name not in names]:
            near = {name: nearest(name, new) for name in missing}
            hints = "; ".join(f"rename {found!r} to {name!r}" for name, found in near.items() if found)
            advice = hints or "add them, and leave unknown values empty"
            raise DataError(f"the model needs the columns {quoted(missing)}, which the data does not have; {advice}")
        return (f"columns that the model does not use: {quoted(new)}",) if new else ()

    def to_sklearn(self) -> Any:
        """Return the fitted model as a scikit-learn Pipeline for data frames; see :mod:`closecall.table.deploy`."""
        from .deploy import to_pipeline  # late: it imports this module

        return to_pipeline(self)

    def save(self, path: str) -> None:
        """Write the model to one file: plain numbers if it is linear, otherwise a skops archive."""
        state = {
            "format": FORMAT, "target": self.target, "mean": self.recipe.mean, "scale": self.recipe.scale,
            "steps": [
                [*astuple(step.column), step.fill, list(step.levels), *([list(step.rare)] if step.rare else [])]
                for step in self.recipe.steps
            ],
            "seen": self.seen, "bound": float(self.recipe.bound) if np.isfinite(self.recipe.bound) else 0.0,
        }  # fmt: skip
        try:
            if self.linear:
                self.classifier.table_ = state
                self.classifier.save(path)
            else:
                keep.dump({**state, "classifier": self.classifier}, path)
        except OSError as error:
            raise DataError(f"cannot write the model {os.fspath(path)!r}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str, trusted: Sequence[str] = ()) -> TableModel:
        """Read a saved model; a damaged, altered or foreign file is rejected, and nothing in it is executed.

        Types from other packages, named as ``package.module.Class``, are allowed in a nonlinear model if they are
        ``trusted``.
        """
        try:
            if keep.is_skops(path):
                given: Any = keep.load(path, trusted)
                classifier = given["classifier"]
            else:
                classifier = read_model(path)
                given = getattr(classifier, TABLE, None)
        except OSError as error:
            raise DataError(f"cannot read the model {os.fspath(path)!r}: {error.strerror or error}") from error
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise DataError(f"{os.fspath(path)!r} was not written by 'closecall fit' of this release; fit it again")
        try:
            return _checked(given, classifier)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = "its preprocessing does not match its classifier; fit it again"
            raise DataError(f"{os.fspath(path)!r}: {why}") from error


def _checked(given: dict[str, Any], classifier: Any) -> TableModel:
    """Rebuild a model from its stored state; anything that ``save`` would not have written raises an error."""
    steps, mean, scale = tuple(_stored_step(*each) for each in given["steps"]), given["mean"], given["scale"]
    bound = _is(float, given.get("bound", 0.0)) or np.inf  # an earlier release did not squash
    seen = given.get("seen", np.empty(0, dtype=np.uint64))  # an earlier release did not store it
    width = (sum(step.width for step in steps),)
    fits = width == mean.shape == scale.shape == (classifier.n_features_in_,)
    fits = fits and mean.dtype == scale.dtype == np.float64 and seen.dtype == np.uint64 and seen.ndim == 1
    if not (fits and bound > 0 and np.isfinite([mean, scale]).all() and (scale > 0).all()):
        raise ValueError("it does not fit")
    return TableModel(_is(str, given["target"]), Preprocessor(steps, mean, scale, bound), classifier, seen)


def marks_of(X: Array, labels: Array) -> Array:
    """Return a 64-bit hash (rows,) of each row and its label, by which the row can be recognised later."""
    content = np.ascontiguousarray(X, dtype=np.float32) + np.float32(0)  # no negative zeros
    digests = [
        hashlib.blake2b(row.tobytes() + str(label).encode(), digest_size=8).digest()
        for row, label in zip(content, labels, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _stored_step(name: Any, kind: Any, form: Any, fill: Any, levels: Any, rare: Any = ()) -> Step:
    """Rebuild a step from the content of a file; anything that ``save`` would not have written raises an error."""
    column = Column(_is(str, name), _is(str, kind), _is(str, form))
    nominal = column.kind == "nominal"
    names, others = (tuple(_is(str, level) for level in _is(list, each)) for each in (levels, list(rare)))
    if not column.is_known or bool(names) != nominal or not (nominal or np.isfinite(_is(float, fill))):
        raise ValueError(f"{column.name!r} is not a step")
    return Step(column, _is(str, fill) if nominal else _is(float, fill), names, others if nominal else ())
