"""Rebuild forests, boosted trees and nearest-neighbour classifiers from the numbers in a skops file.

Skops itself builds nothing: only the arrays, labels and the few settings needed for prediction are read and checked for
consistency, and scikit-learn builds the rest. scikit-learn's compiled code traverses trees without any checks, so a
forged file could otherwise make it read arbitrary memory.
"""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

from closecall._arrays import METHODS, read_member
from closecall._budget import TEXT_OBJECT, Budget
from closecall._names import Array

from .tuning import NEIGHBOURS

SCHEMA = "schema.json"
#: The loaders of skops that build plain data.
_PLAIN = ("DictNode", "ListNode", "TupleNode", "JsonNode", "NdArrayNode", "TypeNode", "DTypeNode", "SliceNode")
_FLOAT = np.dtype(np.float64)
BROKEN = "one of its trees is broken"


@dataclass(frozen=True, eq=False)
class Stored:
    """A skops archive whose schema and arrays are read on demand, with one budget for the whole file."""

    archive: zipfile.ZipFile
    budget: Budget

    def schema(self) -> Any:
        """Return the schema stored in the file: nested nodes, as JSON."""
        member = self.archive.getinfo(SCHEMA)
        if member.compress_type not in METHODS:
            raise ValueError(f"{SCHEMA!r} is neither stored nor deflated")
        with self.archive.open(member) as file:
            return self.budget.parse(self.budget.read(file))

    def array(self, node: Any, dtype: np.dtype[Any] | None = None) -> Array:
        """Return the array of a node; without ``dtype``, it may hold any numbers or text."""
        if node["__loader__"] != "NdArrayNode" or node["type"] != "numpy":
            raise ValueError("one of its arrays is malformed")
        return read_member(self.archive, self.archive.getinfo(node["file"]), self.budget, dtype)

    def numbers(self, node: Any, *shape: int) -> Array:
        """Return finite 64-bit numbers with the given shape."""
        found = self.array(node, _FLOAT)
        if found.shape != shape or not np.isfinite(found).all():
            raise ValueError("some of its numbers are missing or not finite")
        return found

    def nodes(self, node: Any, dtype: np.dtype[Any]) -> Array:
        """Return the nodes (nodes,) of a tree."""
        found = self.array(node, dtype)
        if found.ndim != 1:
            raise ValueError(BROKEN)
        return found

    def plain(self, node: Any) -> Any:
        """Return the plain value of a node: text, a number, a boolean, None, or lists of these."""
        if node["__loader__"] == "ListNode":
            return [self.plain(each) for each in node["content"]]
        if node["__loader__"] != "JsonNode":
            raise ValueError("one of its settings is neither a number nor text")
        return self.budget.parse(node["content"])


def parts(node: Any) -> dict[str, Any]:
    """Return the named parts of a dictionary or an object."""
    inner = node if node["__loader__"] == "DictNode" else node["content"]
    if node["__loader__"] not in ("DictNode", "ObjectNode", "TreeNode") or inner["__loader__"] != "DictNode":
        raise ValueError("one of its parts is empty")
    return dict(inner["content"])


def items(node: Any) -> list[Any]:
    """Return the items of a list."""
    if node["__loader__"] != "ListNode":
        raise ValueError("one of its parts is not a list")
    return list(node["content"])


def names_in(schema: Any) -> Iterator[str]:
    """Yield the classes and functions in a schema, as ``package.module.Class``; plain data is left out.

    Examples
    --------
    >>> inner = {"__module__": "os", "__class__": "system", "__loader__": "FunctionNode"}
    >>> list(names_in({"__module__": "builtins", "__class__": "list", "__loader__": "ListNode", "content": [inner]}))
    ['os.system']
    """
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            if "__class__" in node and not (node.get("__module__") in ("builtins", "numpy") and
                                            node.get("__loader__") in _PLAIN):  # fmt: skip
                yield f"{node.get('__module__')}.{node['__class__']}"


def checked_depth(nodes: Array, inner: Array, names: tuple[str, str, str], features: int) -> int:
    """Return the depth of a tree that can be traversed safely; raise an error if a node points outside the tree.

    ``inner`` (nodes,) marks the nodes that are not leaves; ``names`` are the fields that hold a node's left child,
    right child and feature.
    """
    left, right, column = (nodes[name][inner].astype(np.int64) for name in names)
    place, children = np.flatnonzero(inner), np.concatenate([left, right])
    floats = [name for name in nodes.dtype.names or () if nodes.dtype[name].kind == "f"]
    # Every node except the first is the child of exactly one earlier node, so every path down ends.
    sound = len(nodes) > 0 and np.array_equal(np.sort(children), np.arange(1, len(nodes)))
    sound = sound and bool((left > place).all() and (right > place).all())
    sound = sound and bool(((column >= 0) & (column < features)).all())
    if not (sound and all(np.isfinite(nodes[name]).all() for name in floats)):
        raise ValueError(BROKEN)
    above, steps = np.zeros(len(nodes), dtype=np.int64), np.ones(len(nodes), dtype=np.int64)
    above[children], steps[0] = np.tile(place, 2), 0
    while above.any():  # each pass doubles the number of levels
        steps += steps[above]
        above = above[above]
    return int(steps.max())


def _forest(stored: Stored, given: dict[str, Any], classes: int, features: int) -> Any:
    """Rebuild a forest from the nodes of its trees and the shares of the classes (nodes, 1, classes) in each node."""
    model = RandomForestClassifier(1, random_state=0).fit([[0.0], [1.0]], [0, 1])
    pattern = model.estimators_[0]
    pattern.classes_, pattern.n_classes_, pattern.n_features_in_ = np.arange(float(classes)), classes, features
    dtype, model.estimators_ = pattern.tree_.__getstate__()["nodes"].dtype, []
    for each in map(parts, items(given["estimators_"])):
        state = parts(each["tree_"])
        nodes = stored.nodes(state["nodes"], dtype)
        shares = stored.numbers(state["values"], len(nodes), 1, classes)
        names = ("left_child", "right_child", "feature")
        depth = checked_depth(nodes, nodes["left_child"] != -1, names, features)
        if (shares < 0).any() or not np.allclose(shares.sum(axis=2), 1.0):
            raise ValueError(BROKEN)
        tree = copy.copy(pattern)
        tree.tree_ = type(pattern.tree_)(features, np.array([classes], dtype=np.intp), 1)
        tree.tree_.__setstate__({"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": shares})
        model.estimators_.append(tree)
    count = len(model.estimators_)
    if stored.plain(given["n_estimators"]) != count or not count:
        raise ValueError("its number of trees does not match its settings")
    model.n_classes_ = classes
    return model.set_params(n_estimators=count)


def _boosting(stored: Stored, given: dict[str, Any], classes: int, features: int) -> Any:
    """Rebuild boosted trees from one tree per round (or per round and class) and the baseline score."""
    model = HistGradientBoostingClassifier(max_iter=1, early_stopping=False, random_state=0)
    model.fit([[0.0], [1.0], [2.0]], [0, 1, min(2, classes - 1)])
    ((pattern, *_),) = model._predictors
    scores = 1 if classes == 2 else classes
    model._baseline_prediction = stored.numbers(given["_baseline_prediction"], 1, scores)
    model._predictors = []
    for each in map(items, items(given["_predictors"])):
        if len(each) != scores:
            raise ValueError("one of its rounds has too many or too few trees")
        model._predictors.append([])
        for state in map(parts, each):
            nodes = stored.nodes(state["nodes"], pattern.nodes.dtype)
            if nodes["is_categorical"].any():
                raise ValueError(BROKEN)
            checked_depth(nodes, nodes["is_leaf"] == 0, ("left", "right", "feature_idx"), features)
            tree = copy.copy(pattern)
            tree.nodes = nodes
            model._predictors[-1].append(tree)
    model.n_trees_per_iteration_, model._n_features = scores, features
    if classes > 2:
        model._loss = type(model._loss)(n_classes=classes)
    return model.set_params(max_iter=len(model._predictors))


def _neighbours(stored: Stored, given: dict[str, Any], classes: int, features: int) -> Any:
    """Rebuild a nearest-neighbour classifier from its rows (rows, features) and their codes (rows,)."""
    codes = stored.array(given["_y"], np.dtype(np.intp))
    count = stored.plain(given["n_neighbors"])
    rows = stored.numbers(given["_fit_X"], len(codes), features)
    if count not in NEIGHBOURS or count > len(rows) or not np.array_equal(np.unique(codes), np.arange(classes)):
        raise ValueError("its neighbours do not match its rows and classes")
    return KNeighborsClassifier(count, algorithm="brute").fit(rows, codes)


#: The classes that can be rebuilt, the settings they must have, and how to rebuild them.
KINDS: dict[str, tuple[dict[str, Any], Callable[[Stored, dict[str, Any], int, int], Any]]] = {
    "sklearn.ensemble._forest.RandomForestClassifier": ({}, _forest),
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier": ({}, _boosting),
    "sklearn.neighbors._classification.KNeighborsClassifier": (
        {"algorithm": "brute", "weights": "uniform", "metric": "minkowski", "p": 2}, _neighbours
    ),
}  # fmt: skip
#: Settings that were tuned and are kept with the model.
_SETTINGS = ("max_features", "min_samples_leaf", "max_leaf_nodes", "setting_")


def is_own(stored: Stored, state: dict[str, Any]) -> bool:
    """Return whether the classifier of a model is one that ``closecall fit`` writes."""
    node = state["classifier"]
    fixed, _ = KINDS.get(f"{node['__module__']}.{node['__class__']}", (None, None))
    return fixed is not None and all(stored.plain(parts(node)[name]) == value for name, value in fixed.items())


def rebuilt(stored: Stored, node: Any, features: int) -> Any:
    """Rebuild a classifier in :data:`KINDS`; anything that ``closecall fit`` would not have written raises an error."""
    given = parts(node)
    labels = stored.array(given["classes_"])
    if labels.dtype.kind != "U" or labels.ndim != 1 or len(labels) < 2 or (labels[1:] <= labels[:-1]).any():
        raise ValueError("its classes are not labels")
    if stored.plain(given["n_features_in_"]) != features:
        raise ValueError("its number of features differs from its table's")
    _, make = KINDS[f"{node['__module__']}.{node['__class__']}"]
    model = make(stored, given, len(labels), features)
    stored.budget.spend(TEXT_OBJECT * len(labels) + labels.nbytes)
    model.classes_ = labels.astype(object)  # a long label is stored once, however many rows have it
    model.n_features_in_ = features
    for name in _SETTINGS:
        value = stored.plain(given[name]) if name in given else None
        if isinstance(value, int | float | str):
            setattr(model, name, value)
    return model
