"""Plant faults in the source, one at a time, and report those that no test detects.

    python -m gate.planted_faults                 every fault, each against the tests named with it
    python -m gate.planted_faults leaked weight   only faults whose name contains one of the words
    python -m gate.planted_faults --fit           only check that the old text of each fault occurs exactly once

The package is copied, one text is replaced in the copy, C is compiled, and the tests run against the copy.
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
    """A change of one place in a file, and the tests that should detect it."""

    name: str
    file: str
    tests: list[str]
    old: str
    new: str

    @property
    def places(self) -> int:
        """How often the old text occurs in the file."""
        return (ROOT / "src" / "closecall" / self.file).read_text().count(self.old)


def read_faults() -> list[Fault]:
    found = []
    for file, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items():
        tests = table.pop("tests")
        found += [Fault(name, file, (*other, tests)[0], old, new) for name, (old, new, *other) in table.items()]
    return found


def planted(fault: Fault, folder: Path) -> Path:
    """Return a copy of the package with the fault in it."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "closecall" / fault.file
    path.write_text(path.read_text().replace(fault.old, fault.new))
    if path.suffix in (".c", ".h"):  # __clang__: without variants for other processors
        kernel = path.with_name("path.c")
        flags = ["-O1", "-D__clang__", "-fPIC", "-shared", "-o", str(kernel.with_name("_path.so"))]
        subprocess.run(["cc", *flags, str(kernel), "-lm"], check=True)
    return copy


def killed(fault: Fault) -> bool:
    """Return whether a test fails with the fault planted."""
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
    parser.add_argument("--fit", action="store_true", help="only check that each fault fits exactly one place")
    given = parser.parse_args()
    chosen = [f for f in read_faults() if not given.words or any(word in f.name for word in given.words)]
    misfits = [f"{fault.name!r} fits {fault.places} places of {fault.file}" for fault in chosen if fault.places != 1]
    if misfits or given.fit:
        raise SystemExit("\n".join(misfits) or None)
    survivors = 0
    for fault in chosen:
        began = time.monotonic()
        dead = killed(fault)
        survivors += not dead
        print(f"{'killed  ' if dead else 'SURVIVES'} {time.monotonic() - began:5.0f} s  {fault.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} faults are killed")
    raise SystemExit(survivors > 0)


if __name__ == "__main__":
    main()
