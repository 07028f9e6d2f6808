"""Plant faults in the source, one at a time, and see which of them no test kills.

    python -m gate.planted_faults                 every fault, each against the tests named with it
    python -m gate.planted_faults leaked weight   only faults whose name contains one of the words
    python -m gate.planted_faults --list          names only
    python -m gate.planted_faults --fit           only whether each still fits the source

The package is copied, a line is changed there, and the tests run against the copy; C is compiled. The
faults are in planted_faults.toml; one that no longer fits is an error.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Fault:
    """A change of one place, and the tests that should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


FAULTS = [Fault(**each) for each in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["fault"]]


def places(fault: Fault) -> int:
    """How many places of the source the fault fits; one, or it has to be moved along."""
    return (ROOT / "src" / "closecall" / fault.file).read_text().count(fault.old)


def planted(fault: Fault, folder: Path) -> Path:
    """A copy of the package with the fault in it."""
    if places(fault) != 1:
        raise SystemExit(f"{fault.name!r} fits {places(fault)} places of {fault.file}, not one; move it along")
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "closecall" / fault.file
    path.write_text(path.read_text().replace(fault.old, fault.new))
    if path.suffix in (".c", ".h"):  # without clones for every processor
        kernel = path.with_name("path.c")
        flags = ["-O1", "-D__clang__", "-fPIC", "-shared", "-o", str(kernel.with_name("_path.so"))]
        subprocess.run(["cc", *flags, str(kernel), "-lm"], check=True)
    return copy


def killed(fault: Fault) -> bool:
    """Whether a test fails with the fault planted."""
    with tempfile.TemporaryDirectory() as folder:
        copy = planted(fault, Path(folder))
        tests = [str(copy / name[4:]) if name.startswith("src/") else name for name in fault.tests]
        options = ["-q", "-x", "-p", "no:cacheprovider", "--doctest-modules", "--hypothesis-profile=first_failure"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        known = os.environ | {"PYTHONPATH": str(copy)}
        done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2):  # 2: the fault breaks the collection itself
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only faults whose name contains one of these")
    parser.add_argument("--fit", action="store_true", help="only check that each fault fits one place")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    given = parser.parse_args()
    chosen = [f for f in FAULTS if not given.words or any(word in f.name for word in given.words)]
    if given.list or given.fit:
        wrong = [fault.name for fault in chosen if places(fault) != 1]
        print("\n".join(wrong if given.fit else [fault.name for fault in chosen]))
        raise SystemExit(bool(wrong) and given.fit)
    survivors: list[str] = []
    for fault in chosen:
        began = time.monotonic()
        dead = killed(fault)
        survivors += [] if dead else [fault.name]
        print(f"{'killed  ' if dead else 'SURVIVES'} {time.monotonic() - began:5.0f} s  {fault.name}", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults are killed")
    raise SystemExit(bool(survivors))


if __name__ == "__main__":
    main()
