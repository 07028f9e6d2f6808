"""Files for nonlinear models, written with skops; only numbers are read back, unless the user trusts the author."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from closecall._arrays import METHODS, check_members
from closecall._budget import Budget
from closecall._files import whole_file
from closecall.table.read.dataset import DataError

from .rebuild import SCHEMA, Stored, is_own, names_in, parts, rebuilt

NEEDS = "{!r} is saved with skops, which is not installed: pip install skops (linear models do not need it)"
#: The largest number of members in an archive.
MAX_MEMBERS = 100_000
#: The largest number of types in an error message.
LISTED = 50


def check_skops(name: str) -> None:
    """Raise an error that states what to install if skops is missing."""
    if importlib.util.find_spec("skops") is None:
        raise ValueError(NEEDS.format(name))


def members_of(path: str | os.PathLike[str]) -> set[str]:
    """Return the names of the files in an archive; the set is empty if the file is not a readable archive."""
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):  # a cheap check, unlike a search through a long table
                return set()
            check_members(file, MAX_MEMBERS)
            with zipfile.ZipFile(file) as archive:
                return set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        return set()  # NotImplementedError means a later version of the zip format


def is_skops(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a skops archive, judging by the file names in it."""
    return SCHEMA in members_of(path)


def dump(state: dict[str, Any], path: str) -> None:
    """Write the state of a model; an existing file is replaced only when the new one is complete."""
    import skops.io

    try:
        content = skops.io.dumps(state, compression=zipfile.ZIP_DEFLATED)
    except Exception as error:  # a class from another package may raise anything
        kind = type(state["classifier"]).__name__
        raise DataError(f"skops cannot save a {kind} ({error}); fit and save it in Python") from error
    with whole_file(path) as file:
        file.write(content)


def load(path: str | os.PathLike[str], trusted: Sequence[str] = ()) -> dict[str, Any]:
    """Read the state written by :func:`dump`, with its classifier rebuilt from checked numbers; see :mod:`.rebuild`.

    Classifiers that ``closecall fit`` does not write are rejected before they are built, unless all their types
    are ``trusted``. Trusted classifiers are built by skops, and only their size is checked.
    """
    where, budget = os.fspath(path), Budget()
    try:
        with open(path, "rb") as file:
            check_members(file, MAX_MEMBERS)
            with zipfile.ZipFile(file) as archive:
                stored = Stored(archive, budget)
                schema = stored.schema()
                if is_own(stored, state := parts(schema)):
                    return _own(stored, state)
                named = sorted(set(names_in(schema)))
                if not named:
                    raise ValueError("it holds no classifier")
                if unknown := [name for name in named if name not in trusted]:
                    more = f" and {len(unknown) - LISTED} more" if len(unknown) > LISTED else ""
                    raise DataError(
                        f"{where!r} contains types that are not checked and may run code: "
                        f"{', '.join(unknown[:LISTED])}{more}; if you trust the author of the file, pass "
                        f"{' '.join(f'--trust {name}' for name in unknown[:LISTED])}{more}"
                    )
                return _trusted(archive, path, budget, named)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # an unknown archive may raise anything
        message = f"{where!r} is damaged or was not written by 'closecall fit' ({error}); fit it again"
        raise DataError(message) from error


def options_for(path: str | os.PathLike[str]) -> str:
    """Return the options that ``predict`` needs for a file that has just been written, or an empty string."""
    with zipfile.ZipFile(path) as archive:
        stored = Stored(archive, Budget())
        schema = stored.schema()
        names = [] if is_own(stored, parts(schema)) else sorted(set(names_in(schema)))
        return " ".join(f"--trust {name}" for name in names)


def _own(stored: Stored, state: dict[str, Any]) -> dict[str, Any]:
    # An earlier release wrote neither "bound" nor "seen".
    plain = ("format", "target", "steps", "bound")
    found: dict[str, Any] = {name: stored.plain(state[name]) for name in plain if name in state}
    found |= {name: stored.array(state[name]) for name in ("mean", "scale", "seen") if name in state}
    return {**found, "classifier": rebuilt(stored, state["classifier"], len(found["mean"]))}


def _trusted(
    archive: zipfile.ZipFile, path: str | os.PathLike[str], budget: Budget, names: Sequence[str]
) -> dict[str, Any]:
    """Return the state that skops builds from a trusted file, if its classifier matches its table."""
    check_skops(os.fspath(path))
    import skops.io

    for member in archive.infolist():
        if member.compress_type not in METHODS:
            raise ValueError(f"{member.filename!r} is neither stored nor deflated")
        with archive.open(member) as file:
            budget.read(file)
    state = skops.io.load(path, trusted=list(names))
    classifier, width = state["classifier"], len(state["mean"])
    labels = classifier.classes_
    fits = is_classifier(classifier) and classifier.n_features_in_ == width and len(set(labels)) == len(labels) > 1
    fits = fits and all(isinstance(label, str) for label in labels)
    if not (fits and len(classifier.predict(np.zeros((1, width))))):
        raise ValueError("its classifier does not match its table")
    return dict(state)
