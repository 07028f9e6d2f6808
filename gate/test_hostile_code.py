"""Nothing in the source executes what it reads: ruff's S rules see most of it, and this the rest."""

import re

import pytest

from tests import ROOT

FILES = sorted(path for folder in ("src", "reproduction", "examples") for path in (ROOT / folder).rglob("*.py"))
DANGER = re.compile(
    r"^\s*(?:import|from) (?:pickle|marshal|shelve|dill|cloudpickle|joblib|imp)\b|allow_pickle=True"
    r"|\b(?:np|numpy)\.load\((?!.*allow_pickle=False)|\btorch\.load\((?!.*weights_only=True)"
    r"|(?<![\w.])(?:compile|__import__)\(|\.(?:unsafe_load|full_load|from_string)\(",
    re.M,
)


def test_nothing_executes_data() -> None:
    mine = [path for path in FILES if "tests" not in path.parts]
    assert [(path.name, found) for path in mine for found in DANGER.findall(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from joblib import load", "x = np.load(path)", "np.load(path, allow_pickle=True)",
     "torch.load(path)", "torch.load(path, weights_only=False)", "compile(text, '', 'exec')"],
)  # fmt: skip
def test_a_danger_is_seen(source: str) -> None:
    assert DANGER.search(source)


def test_what_templates_pass_unescaped_is_known() -> None:
    """``safe`` is for our own style and scripts, JSON that cannot end its element, and pictures drawn by Vega."""
    folders = ("src/closecall/report", "reproduction/pages")
    lines = [
        line
        for folder in folders
        for path in sorted((ROOT / folder / "templates").glob("*.jinja"))
        for line in path.read_text().splitlines()
    ]
    passed = {part.split("|")[0].strip() for line in lines for part in line.split("{{")[1:] if "| safe" in part}
    assert passed <= {"style", "script", "bundle", "walk_data", "chart.picture", "chart.specification"}
