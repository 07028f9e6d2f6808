"""Imports point upwards in the house's reading order only, and ``import closecall`` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

PACKAGE = ROOT / "src" / "closecall"

#: Reading order: a module may import from its own room and from rooms above it.
ROOMS = [
    "_signals",
    "_names",
    "_budget",
    "_arrays",
    "_files",
    "losses",
    "families",
    "aggregates",
    "schedules",
    "objective",
    "paired",
    "theory",
    "solvers",
    "preprocessing",
    "linear",
    "model_selection",
    "network",
    "nn",
    "cluster",
    "stats",
    "report",
    "table",
    "cli",
]

#: What each room may import from outside the standard library, beyond NumPy and SciPy.
OUTSIDE = {
    "solvers": {"threadpoolctl"},
    "preprocessing": {"sklearn"},
    "linear": {"sklearn", "matplotlib", "threadpoolctl", "skl2onnx"},
    "model_selection": {"sklearn"},
    "network": {"sklearn"},
    "nn": {"torch", "lightning", "transformers", "accelerate", "skorch"},
    "cluster": {"sklearn", "dask", "distributed", "pyarrow"},
    "report": {"altair", "vl_convert", "jinja2", "sklearn", "threadpoolctl"},
    "table": {"sklearn", "pandas", "pyarrow", "altair", "threadpoolctl", "skl2onnx", "onnx", "skops"},
    "cli": {"typer", "rich", "click"},
}
#: Neighbours that do not know each other: linear and the networks; what is shown and what is measured.
APART = {
    ("network", "linear"),
    ("nn", "linear"),
    ("cluster", "network"),
    ("cluster", "nn"),
    ("report", "stats"),
}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(source: str, path: Path) -> list[str]:
    """Absolute dotted names that a source imports; relative ones are resolved against its package."""
    package = ["closecall", *path.relative_to(PACKAGE).parts[:-1]]
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            names += [".".join([*module, alias.name]) for alias in node.names]
    return names


def faults(source: str, path: Path) -> list[str]:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return []
    found = []
    for name in imports_of(source, path):
        parts = name.split(".")
        if parts[0] == "closecall":
            target = parts[1] if len(parts) > 1 else ""
            if target in ROOMS and (ROOMS.index(target) > ROOMS.index(room) or (room, target) in APART):
                found.append(f"{room} may not import {name}")
        elif parts[0] not in sys.stdlib_module_names | {"numpy", "scipy"} | OUTSIDE.get(room, set()):
            found.append(f"{room} may not import {name}")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_upwards(path: Path) -> None:
    assert room_of(path) in [*ROOMS, "__init__", "__main__"], "a new room needs its place in the reading order"
    assert faults(path.read_text(), path) == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("losses.py", "from .aggregates import AGGREGATES"),
        ("losses.py", "import sklearn"),
        ("solvers/batched.py", "from ..linear import classifier"),
        ("linear/search.py", "import closecall.table.compare"),
        ("nn/modules.py", "from ..linear.classifier import CloseKClassifier"),
        ("table/read/files.py", "def f():\n    import torch"),
        ("table/compare.py", "from reproduction.protocol.plan import Cell"),
        ("cli/main.py", "import reproduction.app"),
        ("stats.py", "from .report.formats import Table"),
        ("report/charts.py", "from closecall import stats"),
        ("report/html.py", "import pandas"),
        ("table/report.py", "from closecall.cli.console import out"),
    ],
)
def test_a_wrong_import_is_caught(room: str, source: str) -> None:
    assert faults(source, PACKAGE / room)


def test_import_is_light() -> None:
    heavy = ["torch", "pandas", "matplotlib", "altair", "dask", "distributed", "typer", "rich"]
    code = f"import sys, closecall; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
