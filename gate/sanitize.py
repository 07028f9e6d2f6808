"""The C kernels under the address and undefined-behaviour sanitizers: random calls and whole solves, from all starts.

    python -m gate.sanitize --calls 100000 --solves 10000 --networks 1000 --paths 10000
    python -m gate.sanitize --short

The package is copied, its kernels are compiled anew with the sanitizers, and a process that has the sanitizer's library
loaded first runs them. A report ends that process: the exit code is then 1, and the report is printed. Everything is
drawn from ``--seed``; ``--first`` begins later, to repeat.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KERNELS = ("solvers/pull.c", "solvers/path.c", "network/kernel.c")
#: Without clones for every processor, which take a minute to compile and are the same source; ``__clang__`` says so.
#: The network's wide vectors are another source, which ``CHOSEN_CLONES`` brings in.
WIDE = ["-DCHOSEN_CLONES"] if platform.machine() in ("x86_64", "AMD64") else []
FLAGS = ["-O0", "-g1", "-D__clang__", *WIDE, "-fPIC", "-shared", "-fno-omit-frame-pointer",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]  # fmt: skip


def runtime() -> str:
    """The sanitizer's library, or nothing if the compiler has none."""
    if shutil.which("cc") is None:
        return ""
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False).stdout
    path = Path(found.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else ""


def build(folder: Path) -> Path:
    """A copy of the package in ``folder`` with sanitized kernels; the folder to import it from."""
    shutil.copytree(
        ROOT / "src" / "closecall", folder / "closecall", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in KERNELS:
        source = folder / "closecall" / name
        target = source.with_name(f"_{source.stem}.so")
        subprocess.run(["cc", *FLAGS, "-o", str(target), str(source), "-lm"], check=True)
    return folder


def run(place: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the cases with the kernels that :func:`build` made, in a process of their own."""
    environment = {
        **os.environ, "LD_PRELOAD": runtime(), "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CLOSECALL_SANITIZED": str(place),
    }  # fmt: skip
    command = [sys.executable, "-m", "gate.sanitized_cases", *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000, help="calls of the solver's kernel")
    parser.add_argument("--solves", type=int, default=100, help="whole solves")
    parser.add_argument("--networks", type=int, default=20, help="grids of networks")
    parser.add_argument("--paths", type=int, default=100, help="paths of cuts")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="some seconds, for every check of the project")
    given = parser.parse_args()
    if not runtime():
        print("the C compiler has no address sanitizer; nothing was run")
        return 2
    counts = (400, 60, 6, 60) if given.short else (given.calls, given.solves, given.networks, given.paths)
    with tempfile.TemporaryDirectory() as folder:
        done = run(build(Path(folder)), *counts, given.first, given.seed)
    print(done.stdout, done.stderr[-6000:], sep="\n")
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
