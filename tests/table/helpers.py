"""Run the command line in the process of the tests, on tables as messy as those of a new user.

Import this module first: without the optional packages, it skips the tests.
"""

import csv
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

pytest.importorskip("typer", reason="install closecall[bench]")
pd = pytest.importorskip("pandas", reason="install closecall[bench]")

from closecall import cli  # noqa: E402

#: A comparison that takes a second instead of ten: two splits, and only close-k and the baseline.
QUICK = ("--splits", 2, "--no-report", "--json")
LINEAR = (*QUICK, "--only", "logistic_regression")


class Run:
    """Runs the command in this process and keeps what it wrote to ``out`` and ``err``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "80")
        self.out = self.err = ""

    def __call__(self, *arguments: object, stdin: str | bytes | None = None) -> int:
        self.monkeypatch.setattr(sys, "argv", ["closecall", *map(str, arguments)])
        if stdin is not None:
            content = stdin.encode() if isinstance(stdin, str) else stdin
            self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        self.out, self.err = self.capsys.readouterr()
        return int(stopped.value.code)

    @property
    def unfolded(self) -> str:
        """The messages, without the line breaks of a terminal of 80 columns."""
        return " ".join(self.err.split())

    def refused(self, words: str, *arguments: object, stdin: str | bytes | None = None) -> None:
        """Run a command that must end as a bad request, with these words in its message."""
        assert self(*arguments, stdin=stdin) == cli.BAD_REQUEST, (arguments, self.err)
        assert words in self.unfolded, (arguments, self.err)
        assert "Traceback" not in self.err

    def fit(self, table: str, *options: object) -> None:
        """Fit the model ``m`` to a table (its text, or the name of its file); by default without an estimate."""
        if "\n" in table:
            Path("t.csv").write_text(table, encoding="utf-8")
            table = "t.csv"
        splits = () if "--splits" in options else ("--splits", 0)
        assert self("fit", table, "--out", "m", *splits, *options) == 0, self.err

    def predict(self, *arguments: object, stdin: str | None = None) -> list[dict[str, str]]:
        """Return the predictions of the model ``m`` for the given data and options."""
        assert self("predict", "m", *arguments, stdin=stdin) == 0, self.err
        return list(csv.DictReader(io.StringIO(self.out)))

    def compare(self, *arguments: object) -> dict[str, dict[str, Any]]:
        """Return the results of a comparison by method; the other records are those of :meth:`records`."""
        assert self("compare", *arguments) == 0, self.err
        return {str(record["method"]): record for record in self.records("result")}

    def records(self, kind: str = "") -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.out.splitlines()]
        return [record for record in found if not kind or record["kind"] == kind]


def written(rows: Iterable[str], header: str = "a,b,class", name: str = "t.csv") -> str:
    Path(name).write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return name


def clouds(rows: int = 160, seed: int = 0, apart: float = 2.0) -> list[str]:
    """Return two clouds, balanced by row, which the first column separates."""
    rng = np.random.default_rng(seed)
    return [
        f"{apart * (row % 2) + rng.standard_normal():.3f},{rng.standard_normal():.3f},{'no' if row % 2 else 'yes'}"
        for row in range(rows)
    ]


def customers(rows: int = 120, seed: int = 0) -> str:
    """Semicolons, decimal commas, a date, an identifier, missing values, string labels in the last column."""
    rng = np.random.default_rng(seed)
    lines = ["Kundennummer;Alter;Umsatz;Seit;Stadt;leer;kauft"]
    for row in range(rows):
        age, city = rng.integers(18, 80), rng.choice(["Köln", "Bonn", "Ulm"])
        buys = "ja" if age + 8 * rng.standard_normal() + 10 * (city == "Ulm") > 50 else "nein"
        amount = "" if row % 9 == 0 else f"{rng.random() * 1000:.2f}".replace(".", ",")
        lines.append(f"{90001 + 7 * row};{age};{amount};{1 + row % 28:02d}.03.2021;{city};;{buys}")
    return "\n".join(lines) + "\n"


def plants(rows: int = 90, seed: int = 1) -> str:
    """Three classes in a column named Class that is not the last; quotes, `?`, text among numbers."""
    rng = np.random.default_rng(seed)
    lines = ["Class,width,height,note"]
    for row in range(rows):
        kind = row % 3
        width = "?" if row % 10 == 0 else f"{kind + 0.4 * rng.standard_normal():.3f}"
        height = "unknown" if row == 5 else f"{-kind + 0.6 * rng.standard_normal():.3f}"
        lines.append(f'"{("red, big", "green", "=blue")[kind]}",{width},{height},"say ""{row % 4}"""')
    return "\n".join(lines) + "\n"


def package(folder: Path, name: str, content: str) -> None:
    """Write a package of the user into a folder, which is on Python's path."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(content)


#: A classifier of the user's own.
STUMP = (
    "from sklearn.tree import DecisionTreeClassifier\n\n\nclass Stump(DecisionTreeClassifier):\n"
    "    def __init__(self, max_depth=1):\n        super().__init__(max_depth=max_depth)\n"
)


def platt(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return the slope and offset that minimise the log loss of Platt's smoothed targets, found by SciPy."""
    up, down = int(positive.sum()), int((~positive).sum())
    target = np.where(positive, (up + 1) / (up + 2), 1 / (down + 2))

    def loss(pair: np.ndarray) -> float:
        z = pair[0] * scores + pair[1]
        return float((np.logaddexp(0, z) - target * z).sum())

    found: np.ndarray = minimize(loss, [0.5, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).x
    return found
