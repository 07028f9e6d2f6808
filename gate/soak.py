"""Print what load does to closecall; exit with 1 if a figure is not as docs/robustness.md promises.

python -m gate.soak --cells 20000         # small cells through local processes and Dask; memory, files
python -m gate.soak --rows 10000000       # rows through fit and predict; time and peak memory
python -m gate.soak --short               # a little of both, in about half a minute of one core
"""

import argparse
import subprocess
import sys

from gate import soak_load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=0, help="how many small cells to run on each engine")
    parser.add_argument("--rows", type=int, default=0, help="how many rows to fit")
    parser.add_argument("--engines", default="local,dask", help="for --cells")
    parser.add_argument("--short", action="store_true", help="a little of everything")
    parser.add_argument("--fit-rows", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit_rows:  # in a process of its own, so that its peak memory is its own
        soak_load.fit_rows(given.fit_rows)
        return
    good = True
    cells = {"local": 400, "dask": 150} if given.short else dict.fromkeys(given.engines.split(","), given.cells)
    for engine, count in cells.items():
        if count:
            good &= soak_load.report(soak_load.run_cells(engine, count))
    rows = 100_000 if given.short else given.rows
    if rows:
        alone = [sys.executable, "-m", "gate.soak", "--fit-rows", str(rows)]
        good &= not subprocess.run(alone, check=False).returncode
        good &= soak_load.stream_rows((20_000, 60_000) if given.short else (20_000, 1_000_000))
    print("as promised" if good else "NOT AS PROMISED")
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
