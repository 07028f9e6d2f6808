"""Files of skops for :mod:`gate.fuzz`: small models, changed where it matters, and what is asked of them.

Bytes that change in an archive are noticed by its checksums, so the schema and the arrays are changed inside it: other
values, classes and loaders, parts that are missing, repeated or exchanged, numbers that lead astray, headers that lie.
"""

import copy
import io
import json
import random
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from closecall.table.model import TableModel
from closecall.table.table import read
from gate.fuzz import mutate

SCHEMA = "schema.json"
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 95, 255, 2**31, 2**63, -(2**63), 10**30, 0.5, -1.5, 1e308, float("nan"),
    float("inf"), "", "a", "é" * 1000, "number", "nominal", "date", "brute", "1", "[1]", "NaN", [], {}, [[]],
    "schema.json",
)  # fmt: skip
LOADERS = ("DictNode", "ListNode", "TupleNode", "JsonNode", "NdArrayNode", "ObjectNode", "TreeNode", "ReduceNode",
           "FunctionNode", "PartialNode", "TypeNode", "MethodNode", "LossNode", "RandomGeneratorNode", "CachedNode",
           "SparseMatrixNode", "OperatorFuncNode", "nothing")  # fmt: skip
CLASSES = (
    ("sklearn.ensemble._forest", "RandomForestClassifier"),
    ("sklearn.neighbors._classification", "KNeighborsClassifier"),
    ("sklearn.ensemble._hist_gradient_boosting.gradient_boosting", "HistGradientBoostingClassifier"),
    ("sklearn.svm._classes", "SVC"), ("sklearn.pipeline", "Pipeline"),
    ("sklearn.linear_model._logistic", "LogisticRegression"),
    ("os", "system"), ("builtins", "eval"), ("builtins", "dict"), ("numpy", "ndarray"), ("numpy", "float64"), ("", ""),
)  # fmt: skip
WHOLE = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 100, 2**31 - 1, 2**31, 2**63 - 1)
REAL = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e39, 5e-324, -1.0, 0.0, 0.5, 1.0, 2.0, 1e6)
TYPES = ("<f4", ">f8", "<f8", "<i4", "<i8", "<u8", "|b1", "<U3", "<c16", "|O", "|V8", "<M8[s]")


def models() -> dict[str, bytes]:
    """What ``closecall fit`` writes, with few trees: of two classes and of three."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: data for classes in (2, 3) for name, data in _models_of(classes, Path(folder))}


def _models_of(classes: int, folder: Path) -> Iterator[tuple[str, bytes]]:
    lines = [f"{i % 9},{(i * i) % 7},{'xyz'[i % 3]},{'abc'[i % classes]}\n" for i in range(30)]
    path = folder / "table.csv"
    path.write_text("size,weight,kind,target\n" + "".join(lines))
    table = read(str(path))
    plain = TableModel.fit(table, "k_nn")
    X, y = plain.recipe.matrix(table.frame), np.asarray(table.labels, dtype=str)
    others = {
        "neighbours": plain.classifier,
        "forest": RandomForestClassifier(2, max_depth=3, random_state=0).fit(X, y),
        "boosting": HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=4, min_samples_leaf=2).fit(X, y),
    }
    for name, classifier in others.items():
        replace(plain, classifier=classifier).save(str(path))
        yield f"{name}-{classes}.skops", path.read_bytes()


def change(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """A file of skops with one to four changes inside it; sometimes its bytes are changed."""
    if chance.random() < 0.1:
        return mutate(chance, data, other)
    members = _members(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        arrays = [name for name in members if name.endswith(".npy")]
        kind = chance.random()
        if kind < 0.45 and SCHEMA in members:
            members[SCHEMA] = _change_schema(chance, members[SCHEMA], _members(other)[SCHEMA])
        elif kind < 0.9 and arrays:
            name = chance.choice(arrays)
            members[name] = _change_array(chance, members[name])
        else:
            _change_members(chance, members, _members(other))
    buffer = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2 if chance.random() < 0.01 else method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _change_members(chance: random.Random, members: dict[str, bytes], others: dict[str, bytes]) -> None:
    name = chance.choice(list(members))
    kind = chance.randrange(4)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[name] = mutate(chance, members[name], chance.choice(list(others.values())))
    elif kind == 2:
        members[name] = chance.choice(list(members.values()))
    else:
        members[name] = chance.choice(list(others.values()))


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every place in nested lists and dictionaries."""
    waiting, found = [node], []
    while waiting:
        each = waiting.pop()
        inside = list(each.items()) if isinstance(each, dict) else list(enumerate(each))
        found += [(each, key) for key, _ in inside]
        waiting += [value for _, value in inside if isinstance(value, dict | list)]
    return found


def _place(chance: random.Random, schema: Any) -> tuple[Any, Any]:
    """A place by its name first, so that what is there once is changed as often as what is there everywhere."""
    places = _places(schema)
    name = chance.choice(sorted({str(key) for _, key in places}))
    return chance.choice([place for place in places if str(place[1]) == name])


def _change_schema(chance: random.Random, text: bytes, other: bytes) -> bytes:
    try:
        schema = json.loads(text)
    except ValueError:  # changed before
        return text
    if not isinstance(schema, dict | list) or not schema:
        return text
    holder, key = _place(chance, schema)
    value, kind = holder[key], chance.randrange(7)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = copy.deepcopy(chance.choice(VALUES))
    elif kind == 2 and isinstance(value, dict) and "__loader__" in value:
        if chance.random() < 0.5:
            value["__module__"], value["__class__"] = chance.choice(CLASSES)
        else:
            value["__loader__"] = chance.choice(LOADERS)
    elif kind == 3 and isinstance(value, dict):
        holder[key] = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True,
                       "content": json.dumps(chance.choice(VALUES))}  # fmt: skip
    elif kind == 4 and isinstance(value, list):
        holder[key] = value * chance.choice((0, 2, 3, 50))
    elif kind == 5:
        there, name = _place(chance, json.loads(other))
        holder[key] = there[name]
    else:
        there, name = _place(chance, schema)
        holder[key] = copy.deepcopy(there[name])
    return json.dumps(schema).encode()


@np.errstate(all="ignore")
def _change_array(chance: random.Random, content: bytes) -> bytes:
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception:  # changed before: NumPy complains in many ways
        return mutate(chance, content, content)
    kind = chance.randrange(8)
    if kind < 4:
        array = _change_numbers(chance, array.copy(), chance.choice((1, 1, 2, 10)))
    elif kind == 4 and array.ndim:
        array = chance.choice((array[:-1], array[:0], array[1:], np.concatenate([array, array]), array[::-1].copy()))
    elif kind == 5:
        array = chance.choice((array.ravel(), array[None], array[..., None], np.asfortranarray(array.T)))
    elif kind == 6:
        return _change_header(chance, content)
    else:
        try:
            array = array.astype(chance.choice(TYPES))
        except Exception:  # there is no such form of it
            return content
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _change_numbers(chance: random.Random, array: Any, count: int) -> Any:
    flat = array.reshape(-1)
    for _ in range(count if flat.size else 0):
        part = flat[chance.choice(array.dtype.names)] if array.dtype.names else flat
        at = chance.randrange(flat.size)
        if part.dtype.kind == "f":
            part[at] = chance.choice(REAL)
        elif part.dtype.kind in "iu":
            info = np.iinfo(part.dtype)
            part[at] = min(
                max(chance.choice((*WHOLE, flat.size, flat.size - 1, int(part[at]) + 1)), info.min), info.max
            )
        elif part.dtype.kind == "U":
            part[at] = chance.choice(("", "a", "b", "zz", "\udc80", "=1+1"))
    return array


def _change_header(chance: random.Random, content: bytes) -> bytes:
    """The text that says type and shape, with another number or type in it."""
    old = content[10:].split(b"}", 1)[0]
    digits = [place for place, byte in enumerate(old) if chr(byte).isdigit()]
    if not digits:
        return content
    place = chance.choice(digits)
    new = old[:place] + chance.choice((b"0", b"1", b"9", b"99999999999", b"-1", b"1, 1")) + old[place + 1 :]
    return content[:10] + new + content[10 + len(old) :]


def read_model(data: bytes, path: Path) -> None:
    """What ``predict`` and ``explain`` ask of a model: labels that it knows, numbers that are finite."""
    import pandas as pd

    from closecall.table.explain import explain

    path.write_bytes(data)
    model = TableModel.load(str(path))
    frame = pd.DataFrame({step.column.name: ["1", None, "x", "-3e5"] for step in model.recipe.steps})
    labels, scores = model.predict(frame)
    chances = model.probabilities(frame)
    explain(model, frame)
    known = set(model.classifier.classes_.tolist())
    if not (set(labels.tolist()) <= known and np.isfinite(scores).all() and chances.shape == (len(frame), len(known))):
        raise AssertionError(f"{labels}, {scores}, {chances.shape}")
    if not (np.isfinite(chances).all() and np.allclose(chances.sum(axis=1), 1)):
        raise AssertionError(f"{chances}")
