"""Files of models that are not linear: skops, with what a file may hold checked before anything is made of it."""

from __future__ import annotations

import errno
import importlib.util
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from closecall._arrays import METHODS
from closecall._budget import Budget
from closecall.data.dataset import DataError
from closecall.report.text import write_whole

NEEDS = "{!r} is kept with skops, which is not installed: pip install skops (linear models need none)"
#: Types that skops asks about and our own models hold; their content is checked by :func:`check_trees`.
TREE, PREDICTOR = "sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
SCHEMA = "schema.json"


def check_skops(name: str) -> None:
    """An error that says what to install."""
    if importlib.util.find_spec("skops") is None:
        raise ValueError(NEEDS.format(name))


def is_skops(path: str | os.PathLike[str]) -> bool:
    """Whether a file is an archive of skops, by its names; the reader of the others says what is wrong with it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return SCHEMA in archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):  # the last but one: a later version of zip
        return False


def dump(state: dict[str, Any], path: str) -> None:
    """Write a model's state; an existing file is replaced only once the new one is complete."""
    import skops.io

    try:
        content = skops.io.dumps(state, compression=zipfile.ZIP_DEFLATED)
    except Exception as error:  # whatever a class of another package raises when it is taken apart
        kind = type(state["classifier"]).__name__
        raise DataError(f"skops cannot keep a {kind} ({error}); fit and keep it in Python") from error
    if not Path(path).parent.is_dir():  # a folder is not made for a mistyped name
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    write_whole(Path(path), content)


def load(path: str | os.PathLike[str], trusted: Sequence[str] = ()) -> dict[str, Any]:
    """The state that :func:`dump` wrote; types that are neither scikit-learn's nor ``trusted`` are refused, unmade."""
    check_skops(os.fspath(path))
    import skops.io

    damaged = f"{os.fspath(path)!r} is damaged, or no model of 'closecall fit'"
    try:
        _check_size(path)
        unknown = sorted(set(skops.io.get_untrusted_types(file=path)) - {TREE, PREDICTOR, *trusted})
    except Exception as error:  # a stranger's archive may raise anything while it is read
        raise DataError(f"{damaged} ({error}); fit it anew") from error
    if unknown:
        raise DataError(
            f"{os.fspath(path)!r} holds types that may run code when they are made: {', '.join(unknown)}; if you "
            f"trust whoever wrote the file, say {' '.join(f'--trust {name}' for name in unknown)}"
        )
    try:
        state = skops.io.load(path, trusted=[TREE, PREDICTOR, *trusted])
        classifier, width = state["classifier"], len(state["mean"])
        check_trees(classifier, width)
        labels = classifier.classes_
        fits = is_classifier(classifier) and classifier.n_features_in_ == width and len(set(labels)) == len(labels) > 1
        fits = (
            fits and all(isinstance(label, str) for label in labels) and len(classifier.predict(np.zeros((1, width))))
        )
    except Exception as error:
        raise DataError(f"{damaged} ({error}); fit it anew") from error
    if not fits:
        raise DataError(f"{damaged}; fit it anew")
    return dict(state)


def _check_size(path: str | os.PathLike[str]) -> None:
    """An error if the archive unpacks beyond the budget of one call; what it states of its own size is not believed."""
    budget = Budget()
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type not in METHODS:
                raise ValueError(f"{member.filename!r} is neither stored nor deflated")
            with archive.open(member) as file:
                content = budget.read(file)
            if member.filename == SCHEMA:
                budget.parse(content)


def check_trees(model: Any, features: int) -> None:
    """An error if a tree would lead out of its own nodes, or ask for a column that is not there.

    The compiled code that follows a tree checks nothing: a forged file would have it read anywhere.

    Parameters
    ----------
    model : fitted classifier
        Whatever trees are in it are found.
    features : int
    """
    for tree in _trees(model):
        if hasattr(tree, "nodes"):
            nodes = tree.nodes
            inner = nodes["is_leaf"] == 0
            left, right, feature = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
            sound = not nodes["is_categorical"].any()
        else:
            left, right, feature = tree.children_left, tree.children_right, tree.feature
            inner, sound = left != -1, True
        place = np.arange(len(left))[inner]
        # Children come after their parent, so that every way down ends.
        for child in (left[inner], right[inner]):
            sound = sound and bool(((child > place) & (child < len(left))).all())
        asked = feature[inner]
        if not (sound and len(left) and ((asked >= 0) & (asked < features)).all()):
            raise ValueError("a tree of it is broken")


def _trees(model: Any) -> Iterator[Any]:
    """Every tree inside an object, each once."""
    waiting, seen = [model], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if kind in (TREE, PREDICTOR):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
            waiting += list(value)
        elif hasattr(value, "__dict__"):
            waiting += vars(value).values()
