"""Build hook: compile the solver's kernel if there is a C compiler; without one the package is pure Python."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOLVERS = Path("src/closecall/solvers")


class CompileKernel(BuildHookInterface):
    """Puts ``_pull.so`` beside ``pull.c`` and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        target = Path(self.root) / SOLVERS / "_pull.so"
        if self.compile(Path(self.root) / SOLVERS / "pull.c", target):
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["artifacts"].append(str(SOLVERS / target.name))

    def compile(self, source: Path, target: Path) -> bool:
        """Whether ``target`` was built; it is renamed into place, so that no half-written library is ever loaded."""
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        command = [*shlex.split(os.environ.get("CC", "cc")), "-O3", "-fPIC", "-shared", "-o", str(fresh), str(source)]
        try:
            subprocess.run([*command, "-lm"], check=True, capture_output=True)
            fresh.replace(target)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", b"").decode(errors="replace") or str(error)
            self.app.display_warning(f"closecall runs without its compiled kernel, several times slower: {reason}")
            fresh.unlink(missing_ok=True)
            target.unlink(missing_ok=True)
            return False
        return True
