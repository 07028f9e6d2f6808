"""Inputs for :mod:`gate.fuzz` that are changed inside an archive, and random command lines.

The checksums of an archive would reveal a change of its bytes. The schema (or header) and the arrays are therefore
changed inside it: other values, classes and loaders, parts that are missing, repeated or exchanged, extreme numbers,
and false headers of arrays.
"""

import contextlib
import copy
import io
import json
import random
import zipfile
from typing import Any

import numpy as np

from gate.fuzz import mutate
from gate.hostile_files import forge

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


#: Words for command lines; the files t.csv and m.npz exist.
COMMANDS = ("reproduce", "status", "report", "check", "fit", "predict", "explain", "export", "--dry-run", "--out")
WORDS = (
    *COMMANDS, "t.csv", "m.npz", "made", "--json", "--splits", "--datasets", "--suite", "--protocol", "--models",
    "--max-iter", "--workers", "--target", "--rows", "--drop", "--keep", "--seed", "--model", "--copy", "--no-download",
    "--help", "--version", "overview", "table1", "figure5", "embedded", "fan8", "nosuch", "0", "-1", "2", "1e9",
    "99999999999", "linear", "paper", "zeros", "\udcff", "\x1b[31m", "\u202e", "--", "-", "-x", "--nosuch", "=", "",
)  # fmt: skip


def change_arguments(chance: random.Random, data: bytes, other: bytes) -> bytes:
    if chance.random() < 0.5:
        return mutate(chance, data, other)
    words = [chance.choice(COMMANDS), *chance.choices(WORDS, k=chance.randrange(7))]
    return "\n".join(words).encode("utf-8", "surrogateescape")


def change_skops(chance: random.Random, data: bytes, other: bytes) -> bytes:
    if chance.random() < 0.1:
        return mutate(chance, data, other)
    members = _change_members(chance, _members(data), _members(other))
    buffer = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2 if chance.random() < 0.01 else method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def change_model(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """Return a model file whose header or arrays are changed and whose checksum is correct."""
    if chance.random() < 0.4:
        return mutate(chance, data, other)
    members, arrays = _change_members(chance, _model_members(data), _model_members(other)), {}
    for name, content in members.items():
        with contextlib.suppress(Exception):  # not an array: NumPy raises errors of many types
            arrays[name.removesuffix(".npy")] = np.load(io.BytesIO(content), allow_pickle=False)
    return forge(members.get(SCHEMA, b""), arrays)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _model_members(data: bytes) -> dict[str, bytes]:
    members = _members(data)
    del members["checksum.npy"]
    return {SCHEMA: np.load(io.BytesIO(members.pop("header.npy"))).tobytes(), **members}


def _change_members(chance: random.Random, members: dict[str, bytes], others: dict[str, bytes]) -> dict[str, bytes]:
    """Change the schema, an array or the list of members, one to four times."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        arrays = [name for name in members if name.endswith(".npy")]
        name, kind = chance.choice(list(members)), chance.random()
        if kind < 0.45 and SCHEMA in members:
            members[SCHEMA] = _change_schema(chance, members[SCHEMA], others[SCHEMA])
        elif kind < 0.9 and arrays:
            name = chance.choice(arrays)
            members[name] = _change_array(chance, members[name])
        elif kind < 0.925:
            del members[name]
        elif kind < 0.95:
            members[name] = mutate(chance, members[name], chance.choice(list(others.values())))
        else:
            members[name] = chance.choice([*members.values(), *others.values()])
    return members


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Return every place in nested lists and dictionaries."""
    waiting, found = [node], []
    while waiting:
        each = waiting.pop()
        inside = list(each.items()) if isinstance(each, dict) else list(enumerate(each))
        found += [(each, key) for key, _ in inside]
        waiting += [value for _, value in inside if isinstance(value, dict | list)]
    return found


def _place(chance: random.Random, schema: Any) -> tuple[Any, Any]:
    """Return a place; its name is drawn first, so that rare names are changed as often as frequent ones."""
    places = _places(schema)
    name = chance.choice(sorted({str(key) for _, key in places}))
    return chance.choice([place for place in places if str(place[1]) == name])


def _change_schema(chance: random.Random, text: bytes, other: bytes) -> bytes:
    try:
        schema = json.loads(text)
    except ValueError:  # already changed
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
    except Exception:  # already changed: NumPy raises errors of many types
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
        except Exception:  # the array cannot be converted
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
    """Change a number in the text that states the type and shape."""
    old = content[10:].split(b"}", 1)[0]
    digits = [place for place, byte in enumerate(old) if chr(byte).isdigit()]
    if not digits:
        return content
    place = chance.choice(digits)
    new = old[:place] + chance.choice((b"0", b"1", b"9", b"99999999999", b"-1", b"1, 1")) + old[place + 1 :]
    return content[:10] + new + content[10 + len(old) :]
