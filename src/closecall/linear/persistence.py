"""Save and load a model as one npz file that contains plain arrays, a JSON header and a checksum, but no code.

``save`` writes every fitted attribute and every parameter that is plain data. Before ``load`` builds anything, it
verifies the format, the version, the name of the class against a fixed list, and a SHA-256 hash of all contents;
then it verifies that the parts of the model are consistent. The checksum detects accidental damage, not forgery: a
forged model can make arbitrary predictions, but its file cannot run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from .._arrays import ArchiveError, read_arrays
from .._budget import TEXT_OBJECT, Budget
from .._files import whole_file
from .._names import Array

FORMAT = "closecall-linear"
VERSION = 1
#: The fitted attribute that holds the preprocessing of a table.
TABLE = "table_"
#: The classes of :mod:`closecall.linear` that a file may name.
CLASSES = ("AggregateLossClassifier", "CloseKClassifier", "AggregateLossClassifierCV", "CloseKClassifierCV")


def save_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to ``path``; an existing file is replaced only once the new one is complete."""
    name = type(model).__name__
    if name not in CLASSES:
        raise TypeError(f"{name} cannot be saved; its base class {type(model).__mro__[1].__name__} can")
    arrays: dict[str, Array] = {}
    params, unsaved = {}, []
    for key, value in model.get_params(deep=False).items():
        try:
            params[key] = _encode(value, f"param.{key}", arrays)
        except TypeError:
            unsaved.append(key)
    if unsaved:
        warnings.warn(f"parameters {unsaved} are objects, not data, and are not saved; a loaded model uses the "
                      "defaults and makes the same predictions", UserWarning, stacklevel=3)  # fmt: skip
    fitted = {key: value for key, value in vars(model).items() if key.endswith("_") and not key.startswith("_")}
    state = {key: _encode(value, f"fitted.{key}", arrays) for key, value in fitted.items()}
    header = {"format": FORMAT, "version": VERSION, "class": name, "params": params, "fitted": state}
    text = json.dumps(header, sort_keys=True)
    stored = {"header": np.frombuffer(text.encode(), dtype=np.uint8), **arrays}
    stored["checksum"] = np.frombuffer(_checksum(stored), dtype=np.uint8)
    with whole_file(path) as file:
        np.savez_compressed(file, **stored)  # type: ignore[arg-type]


def load_model(path: str | PathLike[str], expected: type | None = None) -> Any:
    """Read a saved model; a damaged, altered or unrelated file raises ``ValueError``, and no code in it is executed.

    A file written by ``closecall fit`` raises ``ValueError`` too: without the preprocessing of the table, its
    classifier would make wrong predictions. ``closecall.table.model.TableModel.load`` reads both.

    Examples
    --------
    >>> import tempfile
    >>> from closecall import CloseKClassifier
    >>> model = CloseKClassifier(k=2).fit([[-2.0], [-1.0], [1.0], [2.0]], ["no", "no", "yes", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/model.npz")
    ...     load_model(folder + "/model.npz").predict([[0.5]]).tolist()
    ['yes']
    """
    model = read_model(path, expected)
    if hasattr(model, TABLE):
        raise ValueError(
            f"{os.fspath(path)!r} was written by `closecall fit` and also holds the preprocessing of a table; use "
            "`closecall predict`, or closecall.table.model.TableModel.load"
        )
    return model


def read_model(path: str | PathLike[str], expected: type | None = None) -> Any:
    """Return the model in a file as :func:`load_model` does, and store any preprocessing of a table in ``table_``."""
    name, budget = repr(os.fspath(path)), Budget()
    with open(path, "rb") as file:
        try:
            stored = read_arrays(file, budget)
        except ArchiveError as error:
            raise ValueError(f"{name} is not a complete saved model: {error}; save it again") from None
    given = stored.pop("checksum", None)
    if given is None or "header" not in stored or given.tobytes() != _checksum(stored):
        raise ValueError(f"{name} is damaged or was altered: its checksum does not match; save it again")
    try:
        header: dict[str, Any] = dict(budget.parse(stored.pop("header").tobytes()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} has no readable header ({error}); save it again") from None
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise ValueError(f"{name} has format {header.get('format')!r} version {header.get('version')!r}; "
                         f"this release reads {FORMAT!r} version {VERSION}")  # fmt: skip
    if header.get("class") not in CLASSES:
        raise ValueError(f"{name} names an unknown class {header.get('class')!r}")
    from .. import linear  # imported here because the classifiers import this module

    kind = getattr(linear, header["class"])
    if expected is not None and not issubclass(kind, expected):
        raise ValueError(f"{name} contains a model of the class {header['class']}; load it with {header['class']}.load")
    try:
        return _build(kind, header, partial(_decode, arrays=stored, budget=budget))
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name} is not a model written by save ({error}); save it again") from None


def _build(kind: Any, header: dict[str, Any], decode: Callable[[Any], Any]) -> Any:
    model = kind(**{key: decode(value) for key, value in header["params"].items()})
    for key, value in header["fitted"].items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*_", key) or hasattr(kind, key):
            raise ValueError(f"{key!r} is not a fitted attribute")
        setattr(model, key, decode(value))
    _check_fitted(model)
    return model


def _check_fitted(model: Any) -> None:
    """Check that the parts of a loaded model are consistent, so that its predictions cannot fail."""
    coef, intercept, classes = (_array(getattr(model, name)) for name in ("coef_", "intercept_", "classes_"))
    floats = np.dtype(np.float64), np.dtype(np.float32)
    rows, features = 1 if len(classes) == 2 else len(classes), coef.shape[1]
    names = getattr(model, "feature_names_in_", None)
    calibrators = getattr(model, "calibrators_", [])
    fits = {
        "coef_": coef.dtype in floats and coef.shape == (rows, features) and np.isfinite(coef).all(),
        "intercept_": intercept.dtype in floats and intercept.shape == (rows,) and np.isfinite(intercept).all(),
        "classes_": classes.ndim == 1 and len(np.unique(classes)) == len(classes) >= 2 and classes.dtype.kind != "S",
        "n_features_in_": type(model.n_features_in_) is int and model.n_features_in_ == features,
        "feature_names_in_": names is None or (_array(names).shape == (features,) and names.dtype == object),
        "best_params_": isinstance(getattr(model, "best_params_", {}), dict),
        "calibrators_": (getattr(model, "calibration", None) is None or len(calibrators) == rows)
        and all(each.shape[:1] == (2,) and each.ndim <= 2 and np.isfinite(each).all() for each in calibrators),
    }
    wrong = [name for name, good in fits.items() if not good]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} do not match the other attributes")


def _array(value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"an array was expected, not {type(value).__name__}")
    return value


def _checksum(stored: dict[str, Array]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(stored):
        array = np.ascontiguousarray(stored[name])
        digest.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)  # its bytes, without a copy
    return digest.digest()


def _encode(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return plain data as JSON; arrays are stored separately under their names, and containers record their type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return {"kind": "scalar", "value": _encode(np.asarray(value), name, arrays)}
    if isinstance(value, np.ndarray):
        plain = value
        if value.dtype == object:
            if not all(isinstance(item, str) for item in value.ravel()):
                raise TypeError(f"{name} is an array of objects; labels must be numbers, booleans or strings")
            plain = value.astype(str)
        arrays[name] = plain
        return {"kind": "array", "name": name, "object": value.dtype == object}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{name}.{place}", arrays) for place, item in enumerate(value)]
        return {"kind": "tuple" if isinstance(value, tuple) else "list", "items": items}
    if isinstance(value, dict):
        pairs = [
            [_encode(key, f"{name}.{place}.key", arrays), _encode(item, f"{name}.{place}", arrays)]
            for place, (key, item) in enumerate(value.items())
        ]
        return {"kind": "dict", "items": pairs}
    raise TypeError(f"{name} is a {type(value).__name__}, which is not plain data")


def _decode(value: Any, arrays: dict[str, Array], budget: Budget) -> Any:
    """Invert :func:`_encode`; every use of a text array counts towards the memory budget."""
    decode = partial(_decode, arrays=arrays, budget=budget)
    if not isinstance(value, dict):
        return value
    kind = value["kind"]
    if kind == "scalar":
        return decode(value["value"])[()]
    if kind == "array":
        array = arrays[value["name"]]
        if not value["object"]:
            return array
        if array.dtype.kind != "U":
            raise TypeError(f"{value['name']!r} is declared as text")
        budget.spend(array.size * TEXT_OBJECT + array.nbytes)
        return array.astype(object)
    if kind == "dict":
        return {decode(key): decode(item) for key, item in value["items"]}
    items = [decode(item) for item in value["items"]]
    return tuple(items) if kind == "tuple" else items
