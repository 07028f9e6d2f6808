"""Nothing in the source executes what it reads: no pickle, eval, exec, yaml.load, unsafe torch.load or shell."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import ROOT

FILES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])
MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "imp", "pickletools"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
METHODS = {"read_pickle", "to_pickle", "loads_pickle", "system", "popen", "from_string", "unsafe_load", "full_load"}
#: (a call's last names, a keyword that it must have, and its value)
WITH = (("np.load", "allow_pickle", False), ("numpy.load", "allow_pickle", False), ("torch.load", "weights_only", True))


def dangers(source: str) -> list[str]:
    """What of a source could execute data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [f"import {alias.name}" for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES and not node.level:
            found.append(f"from {node.module}")
        elif isinstance(node, ast.Call):
            found += _of_call(node)
    return found


def _of_call(node: ast.Call) -> list[str]:
    name = ast.unparse(node.func)
    given = {word.arg: word.value for word in node.keywords}

    def says(word: str, value: bool) -> bool:
        return isinstance(given.get(word), ast.Constant) and given[word].value is value  # type: ignore[attr-defined]

    found = [name] if name in BUILTINS or name == "yaml.load" else []
    found += [name] if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS else []
    found += [f"{name} without {word}={value}" for call, word, value in WITH if name == call and not says(word, value)]
    found += [f"{name} with a shell"] if "shell" in given and not says("shell", False) else []
    found += [f"{name} allows pickle"] if says("allow_pickle", True) else []
    found += (
        [f"{name} without autoescape"] if name.endswith("jinja2.Environment") and not says("autoescape", True) else []
    )
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_executes_data(path: Path) -> None:
    assert dangers(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "eval(text)",
        "exec(text)",
        "yaml.load(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "pd.read_pickle(path)",
        "subprocess.run(words, shell=True)",
        "os.system(words)",
        "jinja2.Environment(undefined=x)",
    ],
)
def test_a_danger_is_seen(source: str) -> None:
    assert dangers(source)


def test_what_templates_pass_unescaped_is_known() -> None:
    """``safe`` is for our own style and scripts, JSON that cannot end its element, and pictures drawn by Vega."""
    templates = ROOT / "src" / "closecall" / "report" / "templates"
    lines = [line for path in sorted(templates.glob("*.jinja")) for line in path.read_text().splitlines()]
    passed = {part.split("|")[0].strip() for line in lines for part in line.split("{{")[1:] if "| safe" in part}
    assert passed <= {"style", "script", "bundle", "walk_data", "chart.picture", "chart.specification"}
