"""Suites: named lists of data sets, and which of them are available locally."""

from __future__ import annotations

import os
from typing import NamedTuple

from closecall._names import lookup

from .catalogue import FAN8, FAN8_FILES, OPENML100, PMLB94, PMLB_GONE
from .embedded import EMBEDDED
from .sources import at_hand, resolve

#: Every suite by name; its members are names that `load_dataset` takes. ``fan8`` has nine: both germans.
#: ``hu4`` are the sets of Hu et al. (2020), ``he2`` two of He and Little (2023): Haberman and blood transfusion.
SUITES: dict[str, tuple[str, ...]] = {
    "embedded": tuple(f"embedded:{name}" for name in EMBEDDED),
    "fan8": tuple(name for names in FAN8.values() for name in names),
    "pmlb94": tuple(f"pmlb:{name}" for name in PMLB94),
    "openml100": tuple(f"openml100:{task}" for task in OPENML100),
    "hu4": ("pmlb:monk3", "pmlb:australian", "fan8:splice3175", "pmlb:phoneme"),
    "he2": ("pmlb:haberman", "openml100:10101"),
}


class Availability(NamedTuple):
    """One member of a suite: its name, its title, whether it is available locally, and how it is or how to get it."""

    name: str
    title: str
    at_hand: bool
    why: str


def available(suite: str, data_dir: str | os.PathLike[str] | None = None) -> list[Availability]:
    """Which members of a suite are available locally, and how to get the missing ones. Nothing is read or downloaded.

    Examples
    --------
    >>> available("embedded")[0]
    Availability(name='embedded:corral', title='corral', at_hand=True, why='generated')
    """
    members = lookup(SUITES, suite, "suite")
    return [_availability(name, data_dir) for name in members]


def _availability(name: str, data_dir: str | os.PathLike[str] | None) -> Availability:
    source, rest = resolve(name)
    title = OPENML100[int(rest)][1] if source == "openml100" else rest
    if source == "embedded":
        return Availability(name, title, True, "generated")
    if at_hand(name, data_dir):
        return Availability(name, title, True, "in the data directory")
    if source == "fan8":
        why = f"to be fetched by hand: {FAN8_FILES[rest][2]}"
    elif rest in PMLB_GONE:
        why = f"not in today's PMLB: {PMLB_GONE[rest]}"
    else:
        why = "downloaded from PMLB when loaded" if source == "pmlb" else "downloaded from OpenML when loaded"
    return Availability(name, title, False, why)
