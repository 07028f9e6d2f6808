"""Suites: named lists of data sets, and which of them are available locally."""

from __future__ import annotations

import os

from closecall._names import lookup

from .catalogue import FAN8, OPENML100, PMLB94
from .embedded import EMBEDDED
from .sources import at_hand

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


def available(suite: str, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """The members of a suite that can be loaded without a download. Nothing is read.

    Examples
    --------
    >>> available("embedded")[0]
    'embedded:corral'
    """
    return [name for name in lookup(SUITES, suite, "suite") if at_hand(name, data_dir)]
