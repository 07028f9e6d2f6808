"""Importing closecall loads no large package, and its commands load no reproduction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def loaded(code: str, *names: str) -> str:
    """Return which of these packages a program has loaded when it ends."""
    look = f"import sys; {code}; print(sorted({{n.partition('.')[0] for n in sys.modules}} & {{*{names}}}))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_import_is_light() -> None:
    heavy = ("torch", "pandas", "matplotlib", "altair", "dask", "distributed", "typer", "rich")
    assert loaded("import closecall", *heavy) == "[]"


def test_compare_loads_no_reproduction(tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="install closecall[bench]")
    table = tmp_path / "t.csv"
    table.write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{'yes' if i % 3 else 'no'}\n" for i in range(60)))
    argv = ["compare", str(table), "--splits", "2", "--only", "close-k", "--no-report", "--jobs", "1"]
    run = f"from closecall.cli.main import built; built()({argv}, standalone_mode=False)"
    assert loaded(run, "reproduction") == "[]"


def test_the_installed_command_says_how_to_get_the_reproduction(tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="install closecall[bench]")
    code = "import os, sys; sys.argv = ['closecall', 'reproduce']; "
    code += "sys.path = [each for each in sys.path if not os.path.isdir(os.path.join(each, 'reproduction'))]; "
    code += "from closecall.__main__ import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "git clone https://github.com/closecall/closecall, then run make demo there" in done.stderr
