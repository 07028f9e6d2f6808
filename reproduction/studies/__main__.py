"""``python -m reproduction.studies NAME ...`` runs an experiment and writes its table, figure and page."""

# ruff: noqa: E402 - BLAS reads its number of threads when NumPy is imported
import argparse
import importlib
import os
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from .common import Experiment, Settings, page_of, read_csv, write_csv

NAMES = ("classifiers", "referee", "level")


def experiment(name: str) -> Experiment:
    """Import the module of the experiment with the given name and return the experiment."""
    return importlib.import_module(f".{name}", __package__).EXPERIMENT


def publish(found: Experiment, settings: Settings, *, page_only: bool = False) -> Path:
    """Write the table (unless only the page is requested), and then the figure and the page from the table."""
    folder = settings.out / "beyond"
    csv = folder / f"{found.name}.csv"
    if not page_only:
        write_csv(csv, found.table(settings))
    if found.page is None:
        return csv
    page = settings.out / f"beyond-{found.name}.md"
    page.write_text(page_of(found.name, found.page(read_csv(csv), folder / f"{found.name}.svg")))
    return page


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m reproduction.studies", description=__doc__)
    parser.add_argument("names", nargs="+", choices=(*NAMES, "all"), metavar="NAME", help=", ".join((*NAMES, "all")))
    parser.add_argument("--raw", type=Path, default=Path("studies-results"), help="folder of the stores")
    parser.add_argument("--out", type=Path, default=Settings.out, help="folder for pages and tables")
    parser.add_argument("--splits", type=int, help="default: the experiment's own number")
    parser.add_argument("--sets", "--datasets", nargs="*", help="only these data sets")
    parser.add_argument("--max-values", type=int, default=Settings.max_values, help="largest rows x columns")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time; rerun to continue")
    parser.add_argument("--page", action="store_true", help="write the page from the existing table")
    parser.add_argument("--table", action="store_true", help="write the table and the page from the stored results")
    parser.add_argument("--workers", type=int, default=Settings.workers, help="processes")
    given = parser.parse_args(arguments)
    for name in NAMES if "all" in given.names else given.names:
        found = experiment(name)
        splits = given.splits or found.splits
        settings = Settings(
            given.raw, given.out, splits, given.sets, given.seconds, given.max_values, given.workers
        )  # fmt: skip
        if not (given.page or given.table):
            found.run(settings)
        print(publish(found, settings, page_only=given.page))


if __name__ == "__main__":
    main()
