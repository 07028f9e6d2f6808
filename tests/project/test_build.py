"""Names and contents of the wheels and the sdist, and the commands passed to the compiler."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT

pytest.importorskip("hatchling", reason='needs hatchling: pip install "closecall[test]"')

COMPILER = shutil.which(os.environ.get("CC", "cc"))
# CC=false tests the build without a compiler: the command exists but always fails.
ANSWERS = COMPILER is not None and subprocess.run([COMPILER, "--version"], capture_output=True, check=False)
needs_compiler = pytest.mark.skipif(
    not ANSWERS or ANSWERS.returncode != 0 or os.name == "nt", reason="needs a C compiler: cc, or the command in CC"
)


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources of the sdist and of the results, without compiled libraries."""
    folder = tmp_path / "tree"
    for name in ("src", "docs/results"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, folder)
    return folder


def build(tree: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(tree.parent / "dist")]
    known = {name: value for name, value in os.environ.items() if not name.endswith("FLAGS")}
    return subprocess.run(
        command, cwd=tree, env=known | environment, capture_output=True, text=True, check=False, timeout=120
    )


def made(tree: Path) -> Path:
    (found,) = (tree.parent / "dist").iterdir()
    return found


@needs_compiler
def test_a_wheel_with_kernels_fits_any_python_of_its_platform(tree: Path, hook: ModuleType) -> None:
    assert build(tree, "wheel", CLOSECALL_REQUIRE_KERNEL="1", CFLAGS="-O0").returncode == 0  # -O0 compiles quickly
    assert "-py3-none-" in made(tree).name
    assert not made(tree).name.endswith("-any.whl")
    with zipfile.ZipFile(made(tree)) as wheel:
        names = set(wheel.namelist())
        (metadata,) = (name for name in names if name.endswith("/WHEEL"))
        assert "Root-Is-Purelib: false" in wheel.read(metadata).decode()
    for kernel in hook.KERNELS:
        source = Path("closecall") / kernel
        assert source.with_name(f"_{source.stem}.so").as_posix() in names


def test_without_a_compiler_the_wheel_is_pure_and_says_so(tree: Path) -> None:
    done = build(tree, "wheel", CC="no-such-compiler")
    assert done.returncode == 0
    assert made(tree).name.endswith("-py3-none-any.whl")
    assert "solvers/pull.c could not be compiled" in done.stdout + done.stderr
    with zipfile.ZipFile(made(tree)) as wheel:
        assert not [name for name in wheel.namelist() if name.endswith(".so")]


def test_a_release_asks_for_the_kernels(tree: Path) -> None:
    done = build(tree, "wheel", CC="no-such-compiler", CLOSECALL_REQUIRE_KERNEL="1")
    assert done.returncode != 0
    assert "CLOSECALL_REQUIRE_KERNEL is set" in done.stderr
    assert not (tree.parent / "dist").exists() or not list((tree.parent / "dist").iterdir())


def test_the_sdist_carries_no_results(tree: Path) -> None:
    assert build(tree, "sdist").returncode == 0
    with tarfile.open(made(tree)) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    sources = {f"src/closecall/solvers/{name}" for name in ("pull.c", "pull.h", "path.c", "looks.h", "exponential.h")}
    assert {"hatch_build.py", "pyproject.toml", *sources} <= {*names}
    assert not [name for name in names if name.startswith("docs/") or name.endswith((".so", ".csv.gz"))]


@needs_compiler
def test_the_users_flags_reach_the_compiler(tree: Path) -> None:
    """Use a wrapper that logs the arguments of the compiler."""
    log, own = tree.parent / "log", tree.parent / "own cc"
    drop = 'for a in "$@"; do shift; [ "$a" = -arch ] || set -- "$@" "$a"; done'  # only compilers on macOS accept it
    own.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\n{drop}\nexec {COMPILER} "$@"\n')
    own.chmod(0o755)
    flags = {"CFLAGS": "-O0 -DOWN=1", "CPPFLAGS": "-DPRE", "LDFLAGS": "-Wl,-s", "ARCHFLAGS": "-arch"}
    assert build(tree, "wheel", CC=f'"{own}"', CLOSECALL_REQUIRE_KERNEL="1", **flags).returncode == 0
    for line in log.read_text().splitlines():
        order = [line.index(word) for word in ("-O3", "-DPRE", "-O0 -DOWN=1", "-arch", ".c ", "-Wl,-s")]
        assert order == sorted(order)
        assert "native" not in line


def test_commands_for_windows(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = Path("pull.c"), Path("_pull.so")
    found = {"gcc": "C:/gcc.exe"}
    monkeypatch.setattr(shutil, "which", found.get)
    assert hook.command({}, source, target, windows=True) == ["gcc", "-O3", "-shared", "-o", "_pull.so", "pull.c"]
    found["cl"] = "C:/cl.exe"
    given = {"CFLAGS": "/arch:AVX2", "LDFLAGS": "/DEBUG"}
    assert hook.command(given, source, target, windows=True) == (
        ["cl", "/nologo", "/O2", "/LD", "/arch:AVX2", "pull.c", "/Fe:_pull.so", "/link", "/DEBUG"]
    )
    assert hook.command({"CC": r"C:\llvm\clang-cl.exe"}, source, target, windows=True)[0] == r"C:\llvm\clang-cl.exe"
