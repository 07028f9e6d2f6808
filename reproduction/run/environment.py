"""The environment of a computation."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("closecall", "numpy", "scipy", "scikit-learn", "torch", "pandas", "distributed")


def environment() -> dict[str, Any]:
    """Return the versions, cores, BLAS, kind of kernel and git revision, which are stored with every run."""
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
    """Return the git revision of the source, with a plus if files differ from it; None for an installed package."""
    # An installed package may lie inside another repository, so this file must be tracked.
    tracked = ["ls-files", "--error-unmatch", Path(__file__).name]
    describe = ["describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
    try:
        for command in (tracked, describe):
            git = ["git", "-C", str(Path(__file__).parent), *command]
            done = subprocess.run(git, check=True, capture_output=True, text=True, timeout=10)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
