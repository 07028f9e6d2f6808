"""Build hook that compiles the kernels if there is a C compiler; without one, the package is pure Python.

The variables ``CC``, ``CPPFLAGS``, ``CFLAGS``, ``LDFLAGS`` and ``ARCHFLAGS`` are used. With
``CLOSECALL_REQUIRE_KERNEL=1``, for builds that will be published, it is an error if the compilation fails.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src/closecall")
#: ``_<name>.so`` is written next to each ``<name>.c`` on every system; ctypes loads it by its path.
KERNELS = ("solvers/pull.c", "solvers/path.c", "network/kernel.c")


def compiler(environment: Mapping[str, str], windows: bool) -> list[str]:
    """Return the compiler and its first arguments: ``CC``, or else ``cc``; on Windows the first compiler found."""
    if given := shlex.split(environment.get("CC", ""), posix=not windows):
        return given
    return [next(filter(shutil.which, ("cl", "clang", "gcc")), "cl")] if windows else ["cc"]


def command(environment: Mapping[str, str], source: Path, target: Path, windows: bool = os.name == "nt") -> list[str]:
    """Return the command that compiles ``source`` to the shared library ``target``; the user's flags come last."""
    first = compiler(environment, windows)
    flags = {name: environment.get(name, "").split() for name in ("CPPFLAGS", "CFLAGS", "ARCHFLAGS", "LDFLAGS")}
    own = [*flags["CPPFLAGS"], *flags["CFLAGS"], *flags["ARCHFLAGS"]]
    if Path(first[0]).stem.lower() in ("cl", "clang-cl"):
        return [*first, "/nologo", "/O2", "/LD", *own, str(source), f"/Fe:{target}", "/link", *flags["LDFLAGS"]]
    # On Windows there is no flag for position-independent code and no separate mathematics library.
    before, after = ([], []) if windows else (["-fPIC"], ["-lm"])
    return [*first, "-O3", *before, "-shared", *own, "-o", str(target), str(source), *flags["LDFLAGS"], *after]


def build(source: Path, target: Path) -> str:
    """Compile a kernel and return why it failed, or an empty string.

    The library is renamed into place, so that an incomplete file is never loaded.
    """
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:  # for other files that the compiler writes
        made = Path(folder) / target.name
        try:
            subprocess.run(command(os.environ, source, made), check=True, capture_output=True, cwd=folder)
            shutil.copyfile(made, fresh)
            fresh.replace(target)
        except (OSError, subprocess.CalledProcessError) as error:
            target.unlink(missing_ok=True)
            said = b"\n".join(filter(None, (getattr(error, name, None) for name in ("stdout", "stderr"))))
            return f"{error}\n{said.decode(errors='replace')}".strip()
    return ""


class CompileKernels(BuildHookInterface):
    """Write the libraries next to their sources and into the wheel, which works with any Python 3 of its platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        sources = [(Path(self.root) / PACKAGE / name).resolve() for name in KERNELS]
        targets = [source.with_name(f"_{source.stem}.so") for source in sources]
        with ThreadPoolExecutor() as side_by_side:
            failures = list(side_by_side.map(build, sources, targets))
        for name, target, failure in zip(KERNELS, targets, failures, strict=True):
            if failure:
                self.without(name, failure)
                continue
            platform = self.build_config.builder.get_best_matching_tag().split("-", 2)[2]
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform}"
            build_data["artifacts"].append(str((PACKAGE / name).with_name(target.name).as_posix()))

    def without(self, name: str, failure: str) -> None:
        if os.environ.get("CLOSECALL_REQUIRE_KERNEL", "0") not in ("", "0"):
            raise RuntimeError(f"{name} does not compile, and CLOSECALL_REQUIRE_KERNEL is set: {failure}")
        self.app.display_warning(f"{name} could not be compiled, so closecall will run several times slower: {failure}")
