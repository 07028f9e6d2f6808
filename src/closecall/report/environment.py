"""The environment of a computation: versions, cores, BLAS, kind of kernel and git revision."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("closecall", "numpy", "scipy", "scikit-learn", "torch", "pandas", "distributed")


def environment() -> dict[str, Any]:
    """Versions, cores, BLAS, kind of kernel and git revision, stored with every run.

    Examples
    --------
    >>> environment()["packages"]["numpy"].count(".") >= 1
    True
    """
    from threadpoolctl import threadpool_info

    from closecall.solvers.compiled import LIBRARY

    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": versions,
        "blas": sorted({f"{pool['internal_api']} {pool.get('version') or ''}".strip() for pool in threadpool_info()}),
        "kernel": "compiled" if LIBRARY else "NumPy",
        "revision": _revision(),
    }


def _revision() -> str | None:
    """The source's git revision, with a plus if files differ from it; None for an installed package."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
    try:
        # Only if this very file is tracked: an installed package may lie inside somebody else's repository.
        subprocess.run(
            ["git", "-C", str(folder), "ls-files", "--error-unmatch", Path(__file__).name],
            check=True,
            capture_output=True,
            timeout=10,
        )
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
