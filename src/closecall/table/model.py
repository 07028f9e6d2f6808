"""Preprocessing and classifier as one model, saved in one file without pickle.

A missing number becomes the training mean, a missing name the most frequent one; names get a column each, a name that
training never saw is none of them; everything is scaled to mean 0 and variance 1 by the training rows. The recipe is
plain data and travels as a fitted attribute of the classifier, so that :mod:`closecall.linear.persistence` saves and
checks both together.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, TypeVar

import numpy as np

from closecall._names import Array, lookup
from closecall.linear.base import LinearClassifier
from closecall.linear.persistence import TABLE, read_model
from closecall.table.read.columns import DATES, Column, nearest, numbers, quoted, texts
from closecall.table.read.dataset import MATRIX_BYTES, DataError
from closecall.table.read.encode import encoded, learn, moments
from closecall.table.read.sheet import Sheet, codes_of

from . import keep
from .measure import wide
from .tuning import scores_of

T = TypeVar("T")
FORMAT = 1
#: Names of a column that get a column each: the most frequent ones. Free text would fill the memory.
MAX_LEVELS = 100
#: So many values that are no numbers, and nothing else, make a column another one.
FEW = 3
#: Rows by which a model knows what it has learnt from.
REMEMBERED = 2000


@dataclass(frozen=True)
class Step:
    """What becomes of a column: the value for a missing one, and the names that get a column each (none: a number)."""

    column: Column
    fill: float | str
    levels: tuple[str, ...] = ()

    @property
    def first(self) -> int:
        """1 if there are two names: the first one's column would be the second one's complement. Else 0."""
        return int(len(self.levels) == 2)

    @property
    def width(self) -> int:
        """How many columns the step makes."""
        return len(self.levels) - self.first if self.levels else 1

    @property
    def names(self) -> list[str]:
        """What its columns are called."""
        name = self.column.name
        return [f"{name}={level}" for level in self.levels[self.first :]] if self.levels else [name]


@dataclass(frozen=True, eq=False)
class Preprocessor:
    """Steps fitted on training rows, and the mean and scale of the columns they make.

    Parameters
    ----------
    steps : tuple of Step
    mean, scale : arrays (features,)

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": ["1", None, "3"], "b": ["x", "y", "z"]})
    >>> recipe = Preprocessor.fit(frame, [Column("a", "number"), Column("b", "nominal")])
    >>> recipe.matrix(frame).shape, recipe.matrix(frame)[:, 0].round(2).tolist()
    ((3, 4), [-1.22, 0.0, 1.22])
    """

    steps: tuple[Step, ...]
    mean: Array
    scale: Array

    @classmethod
    def fit(cls, frame: Any, columns: Sequence[Column]) -> Preprocessor:
        """Learn the steps from training rows (a pandas frame)."""
        steps = tuple(_step(frame[column.name], column) for column in columns)
        plain = cls(steps, np.zeros(_width(steps)), np.ones(_width(steps)))
        X = plain.matrix(frame)
        return cls(steps, *moments(X))

    @property
    def names(self) -> list[str]:
        """What the columns of the matrix are called."""
        return [name for step in self.steps for name in step.names]

    def matrix(self, frame: Any, strange: Counter[str] | None = None) -> Array:
        """The matrix (rows, features) of a frame; ``strange`` counts values by column that training never saw."""
        need = 8 * len(frame) * len(self.mean)
        if need > MATRIX_BYTES:
            raise DataError(
                f"the table becomes {len(frame)} rows x {len(self.mean)} columns, {need / 2**30:.1f} GiB; use fewer "
                "rows (--rows) or leave out columns of many names (--drop)"
            )
        X, at = np.empty((len(frame), len(self.mean))), 0
        for step in self.steps:
            block, odd = _apply(frame[step.column.name], step)
            X[:, at : at + block.shape[1]] = block
            at += block.shape[1]
            if strange is not None and odd:
                strange[step.column.name] += odd
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused where it counts
            X -= self.mean
            X /= self.scale
        return _finite(X, "values")


def _width(steps: Sequence[Step]) -> int:
    return sum(step.width for step in steps)


def _step(values: Any, column: Column) -> Step:
    if column.kind != "nominal":
        return Step(column, learn(numbers(values, column), nominal=False)[0])
    codes, names = codes_of(texts(values))
    fill, levels = learn(codes, nominal=True, most=MAX_LEVELS)
    found = () if levels is None else tuple(names[int(code)] for code in levels)
    return Step(column, names[int(fill)] if names else "", found or ("",))


def _apply(values: Any, step: Step) -> tuple[Array, int]:
    """The columns (rows, width) that a step makes, and how many values it could not read or did not know."""
    text = texts(values)
    if not step.levels:
        found = numbers(values, step.column)
        odd = int(np.isnan(found).sum() - text.isna().sum()) if values.dtype.kind in "OU" else 0
        return encoded(found, float(step.fill), None), odd
    place = {level: number for number, level in enumerate(step.levels)}
    codes = np.array([place.get(value, -1) for value in text.fillna(step.fill).to_numpy(dtype=object)], dtype=float)
    return encoded(codes, -1.0, np.arange(step.first, len(step.levels))), int((codes < 0).sum())


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted model of tables: how to read the columns, and the classifier.

    Parameters
    ----------
    target : str
    recipe : Preprocessor
    classifier : fitted classifier
        Its classes are the labels as text. Linear ones are closecall's.
    seen : array (rows,) of uint64
        Marks of rows that it has learnt from: those with the smallest marks, each of them once in the training rows.
    """

    target: str
    recipe: Preprocessor
    classifier: Any
    seen: Array = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    @classmethod
    def fit(
        cls, table: Sheet, model: str = "close_k", *, loss: str = "logistic", multiclass: str = "top_two",
        metric: str = "accuracy", order: Any = None,
    ) -> TableModel:  # fmt: skip
        """Fit the preprocessing and a model of :data:`closecall.table.train.MODELS` to a table.

        Parameters
        ----------
        table : Sheet
        model : str
        loss : str
            Of close-k and the aggregates.
        multiclass : str
            What becomes of more than two classes: ``ovr``, ``top_two`` or ``softmax``.
        metric : str
            What a search goes by.
        order : closecall.table.divide.Order, optional
            Groups or times that the folds of a search keep apart.
        """
        from .train import How, train  # late: what it offers is built on this module

        recipe = Preprocessor.fit(table.frame, table.columns)
        X, y = recipe.matrix(table.frame), np.asarray(table.labels, dtype=str)
        rows, cv, groups = np.arange(len(y)), None, None
        if order is not None and order.kind:
            rows = np.argsort(order.values, kind="stable") if order.kind == "time" else rows
            cv, groups = order.inner(np.unique(y, return_inverse=True)[1], rows)
        fitted = train(model, X[rows], y[rows], How(loss, multiclass, metric, cv, groups))
        marks, times = np.unique(marks_of(X, y), return_counts=True)
        return cls(table.target, recipe, fitted, marks[times == 1][:REMEMBERED])

    @property
    def linear(self) -> bool:
        """Whether its scores are sums over the columns."""
        return isinstance(self.classifier, LinearClassifier)

    @property
    def coefficients(self) -> list[dict[str, Any]]:
        """Every coefficient by name, the largest first: for one standard deviation, and for one unit of the column.

        None if the model is not linear.
        """
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
        """How many rows of a frame with labels could be known by their marks, and how many are."""
        if not len(self.seen) or not len(frame):
            return 0, 0
        marks = marks_of(self.recipe.matrix(frame), labels.astype(str))
        asked = marks <= self.seen[-1] if len(self.seen) == REMEMBERED else np.ones(len(marks), dtype=bool)
        return int(asked.sum()), int(np.isin(marks[asked], self.seen).sum())

    @np.errstate(over="ignore", invalid="ignore")
    def probabilities(self, frame: Any) -> Array:
        """Calibrated probabilities (rows, classes); an error if ``fit`` did not calibrate."""
        if not hasattr(self.classifier, "predict_proba"):
            why = "it was fitted by an earlier release" if self.linear else "its classifier has none"
            raise DataError(f"the model has no probabilities: {why}; fit it anew, with --model close_k for example")
        if not len(frame):
            return np.empty((0, len(self.classifier.classes_)))
        return _finite(self.classifier.predict_proba(self.recipe.matrix(frame)), "probabilities")

    @np.errstate(over="ignore", invalid="ignore")
    def predict(self, frame: Any, strange: Counter[str] | None = None) -> tuple[Array, Array]:
        """Labels (rows,) and scores (rows,): the score of the second of two classes, or the winner's lead."""
        if not len(frame):
            return np.empty(0, dtype=str), np.empty(0)
        X = self.recipe.matrix(frame, strange)
        if self.linear:
            # As objects: a long label is there once, however many rows have it.
            scores, classes = self.classifier.decision_function(X), self.classifier.classes_.astype(object)
            labels = classes[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        else:
            labels, scores = np.asarray(self.classifier.predict(X)).ravel(), self.scores(X)
            labels = labels if labels.dtype == object else labels.astype(str)
        if scores.ndim == 1:
            return labels, scores
        best = np.partition(scores, -2, axis=1)
        return labels, best[:, -1] - best[:, -2]

    @np.errstate(over="ignore", invalid="ignore")
    def scores(self, X: Array) -> Array:
        """Scores (rows,) of the second of two classes, or (rows, classes), of any classifier: logarithms of its odds or
        probabilities if it has any."""
        found = wide(scores_of(self.classifier, X)[0])
        return _finite(found[:, 1] - found[:, 0] if found.shape[1] == 2 else found, "scores")

    def check_numbers(self, frame: Any, strange: Counter[str]) -> None:
        """An error if a column of numbers or dates has none among several values: it is not the column it was."""
        for step in self.recipe.steps:
            name = step.column.name
            if step.levels or strange[name] < FEW:
                continue
            known = texts(frame[name]).dropna()
            if strange[name] >= len(known):
                raise DataError(
                    f"the column {name!r} was {step.column.kind}s in training and holds none here, such as "
                    f"{known.iloc[0][:40]!r}; give the column that the model knows"
                )

    def check(self, names: Sequence[str], known: Sequence[str] = ()) -> tuple[str, ...]:
        """Notes on columns not used (save the ``known``); an error that names those it needs and does not find."""
        wanted = [step.column.name for step in self.recipe.steps]
        new = [name for name in names if name not in (*wanted, *known, self.target)]
        missing = [name for name in wanted if name not in names]
        if missing:
            near = {name: nearest(name, new) for name in missing}
            hints = [f"rename {found!r} to {name!r}" for name, found in near.items() if found]
            raise DataError(
                f"the model needs the columns {quoted(missing)}, which the data does not have; "
                + ("; ".join(hints) if hints else "add them (left empty where unknown)")
            )
        return (f"columns the model does not use: {quoted(new)}",) if new else ()

    def to_sklearn(self) -> Any:
        """The fitted model as a scikit-learn Pipeline that takes frames; see :mod:`closecall.table.deploy`."""
        from .deploy import to_pipeline  # late: it is built on this module

        return to_pipeline(self)

    def save(self, path: str) -> None:
        """Write the model to one file: plain numbers if it is linear, else an archive of skops."""
        state = {
            "format": FORMAT, "target": self.target, "mean": self.recipe.mean, "scale": self.recipe.scale,
            "steps": [[*astuple(step.column), step.fill, list(step.levels)] for step in self.recipe.steps],
            "seen": self.seen,
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
        """Read a saved model; a damaged, changed or foreign file is refused and nothing in it runs.

        Parameters
        ----------
        path : str
        trusted : sequence of str
            Types of other packages, as ``package.module.Class``, that a model which is not linear may hold.
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
            raise DataError(f"{os.fspath(path)!r} was not written by 'closecall fit' of this release; fit it anew")
        try:
            steps = tuple(_stored_step(*each) for each in given["steps"])
            recipe = Preprocessor(steps, given["mean"], given["scale"])
            width = (_width(steps),)
            fits = width == recipe.mean.shape == recipe.scale.shape == (classifier.n_features_in_,)
            fits = fits and recipe.mean.dtype == recipe.scale.dtype == np.float64
            fits = fits and bool(np.isfinite([recipe.mean, recipe.scale]).all() and (recipe.scale > 0).all())
            target = _is(str, given["target"])
            seen = given.get("seen", np.empty(0, dtype=np.uint64))  # an earlier release did not keep it
            fits = fits and seen.dtype == np.uint64 and seen.ndim == 1
        except (LookupError, TypeError, ValueError, AttributeError):
            fits = False
        if not fits:
            raise DataError(f"{os.fspath(path)!r}: its preprocessing does not fit its classifier; fit it anew")
        return cls(target, recipe, classifier, seen)


def marks_of(X: Array, labels: Array) -> Array:
    """A number (rows,) of 64 bits for each row and its label, by which the same row is known again.

    Examples
    --------
    >>> marks = marks_of(np.array([[1.0], [2.0], [1.0]]), np.array(["a", "a", "a"]))
    >>> bool(marks[0] == marks[2] != marks[1])
    True
    """
    content = np.ascontiguousarray(X, dtype=np.float32) + np.float32(0)  # no negative zeros
    digests = [
        hashlib.blake2b(row.tobytes() + str(label).encode(), digest_size=8).digest()
        for row, label in zip(content, labels, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _finite(found: Array, what: str) -> Array:
    if not np.isfinite(found).all():
        raise DataError(f"{what} of some rows are not finite: mend the table, or fit the model anew")
    return found


def _is(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _stored_step(name: Any, kind: Any, form: Any, fill: Any, levels: Any) -> Step:
    """A step as a file has it; whatever ``save`` would not have written raises."""
    column = Column(_is(str, name), _is(str, kind), _is(str, form))
    forms = lookup({"number": ("", ","), "date": ("", *DATES), "nominal": ("",)}, column.kind, "kind")
    nominal = column.kind == "nominal"
    names = tuple(_is(str, level) for level in _is(list, levels))
    if column.form not in forms or bool(names) != nominal or not (nominal or np.isfinite(_is(float, fill))):
        raise ValueError(f"{column.name!r} is no step")
    return Step(column, _is(str, fill) if nominal else _is(float, fill), names)
