"""Modules import only from those above them, and importing closecall loads no large package.

The order of the modules is in pyproject.toml, for import-linter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytest.importorskip("importlinter", reason='needs import-linter: pip install "closecall[test]"')


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages in a folder."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    path = os.pathsep.join((str(folder / "src"), str(folder)))
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_imports_point_upwards() -> None:
    found = lint(ROOT)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/closecall/losses.py", "from .aggregates import AGGREGATES"),
        ("src/closecall/solvers/kernels.py", "def f():\n    import sklearn"),
        ("src/closecall/nn/modules.py", "from ..linear.classifier import CloseKClassifier"),
        ("src/closecall/table/compare.py", "from reproduction.protocol.plan import Cell"),
        ("src/closecall/cli/main.py", "import reproduction.app"),
        ("src/closecall/report/charts.py", "from closecall import stats"),
        ("reproduction/run/store.py", "import torch"),
    ],
)
def test_a_wrong_import_is_caught(path: str, line: str, tmp_path: Path) -> None:
    for name in ("src", "reproduction"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "tests"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / path).open("a") as file:
        file.write(f"\n{line}\n")
    found = lint(tmp_path)
    assert found.returncode == 1, found.stdout + found.stderr


def loaded(code: str, *names: str) -> str:
    """Return which of these packages a program has loaded when it ends."""
    look = f"import sys; {code}; print(sorted({{n.partition('.')[0] for n in sys.modules}} & {{*{names}}}))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_import_is_light() -> None:
    heavy = ("torch", "pandas", "matplotlib", "altair", "dask", "distributed", "typer", "rich")
    assert loaded("import closecall", *heavy) == "[]"


def test_compare_knows_no_reproduction(tmp_path: Path) -> None:
    """A comparison on the command line loads no module of the reproduction."""
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
