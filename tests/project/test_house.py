"""House rules: no repeated code, no ambiguous class names, no comparison with names of losses, no code from files."""

import ast
import re
from collections.abc import Iterator

from closecall.aggregates import AGGREGATES
from closecall.losses import LOSSES
from tests import ROOT

PACKAGE = ROOT / "src" / "closecall"
SOURCES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
CODE = SOURCES | {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.[ch]"))}
#: The number of consecutive lines that counts as repeated code.
LEAST = 8
NAMES = {*AGGREGATES, *LOSSES}
#: The tables of losses and aggregates themselves.
OWN = {"aggregates.py", "losses.py"}

#: What would execute data, besides what ruff's S rules find.
DANGER = re.compile(
    r"^\s*(?:import|from) (?:pickle|marshal|shelve|dill|cloudpickle|joblib|imp)\b|allow_pickle=True"
    r"|\b(?:np|numpy)\.load\((?!.*allow_pickle=False)|\btorch\.load\((?!.*weights_only=True)"
    r"|(?<![\w.])(?:compile|__import__)\(|\.(?:unsafe_load|full_load|from_string)\(",
    re.M,
)

Place = tuple[str, int]


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbers and words of code lines, without blank lines, comments, imports and lone punctuation."""
    imports = False
    for number, line in enumerate(text.splitlines(), 1):
        words = " ".join(line.split())
        if imports or re.match(r"(from \S+ )?import ", words):
            imports = words.endswith("(") or (imports and words != ")")
        elif re.search(r"\w", words) and not words.startswith(("#", "//")):
            yield number, words


def repeated(sources: dict[str, str], least: int = LEAST) -> list[tuple[Place, Place]]:
    """Return pairs of places at which the same run of at least this many lines begins."""
    first: dict[tuple[str, ...], tuple[Place, int]] = {}
    found: list[tuple[Place, Place]] = []
    for name, text in sources.items():
        lines, last = list(lines_of(text)), ("", 0)
        for begin in range(len(lines) - least + 1):
            words = tuple(each for _, each in lines[begin : begin + least])
            place = (name, lines[begin][0])
            other, at = first.setdefault(words, (place, begin))
            if other != place and (other[0] != name or at + least <= begin):
                if last != (other[0], at - 1):  # otherwise it continues the previous run
                    found.append((other, place))
                last = (other[0], at)
    return found


def compares(source: str) -> list[int]:
    """Return the lines with a comparison to the name of a loss or an aggregate, literal or in a constant."""
    tree = ast.parse(source)
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _says(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and any(_says(each, constants) for each in (node.left, *node.comparators))
    ]


def _says(node: ast.expr, constants: set[str]) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(_says(each, constants) for each in node.elts)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in NAMES
    return isinstance(node, ast.Name) and node.id in constants


def test_nothing_is_written_twice() -> None:
    assert repeated(CODE) == []


def test_no_class_name_stands_for_two_things() -> None:
    trees = [ast.walk(ast.parse(text)) for text in SOURCES.values()]
    names = [name for tree in trees for name in {node.name for node in tree if isinstance(node, ast.ClassDef)}]
    assert "Problem" in names
    assert {name for name in names if names.count(name) > 1} == set()


def test_no_path_tests_the_name_of_a_loss_or_an_aggregate() -> None:
    found = {name: compares(text) for name, text in SOURCES.items() if name not in OWN}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_ten_lines_that_stand_twice_are_found() -> None:
    body = "\n".join(f"    step_{i}(x)  " for i in range(LEAST))
    again = "\n\n".join(f"        step_{i}(x)" for i in range(LEAST))
    other = f"import os\n\n\nclass B:\n    def g(self, x):\n        # elsewhere\n{again}\n        return x\n"
    one, two = f"def f(x):\n{body}\n", {"b.py": other}
    assert repeated({"a.py": one} | two) == [(("a.py", 2), ("b.py", 7))]
    assert repeated({"a.py": one + "\n" + one.replace("f(", "g(")}) == [(("a.py", 2), ("a.py", LEAST + 4))]
    assert repeated({"a.py": one.replace("step_4", "step_x")} | two) == []


TESTED = (
    'if problem.aggregate == "close_decay": pass',
    'x = "hinge" != loss',
    'return_early = name in ("atk", "top")',
    'PLAIN = "average"\n\ndef f(name):\n    return name == PLAIN',
    'KNOWN = ("average", "logistic")\nif name not in KNOWN: pass',
)


def test_a_tested_name_is_found_and_tables_are_no_tests() -> None:
    assert all(map(compares, TESTED))
    assert compares('STEPS = {"logistic": 1}\nif loss in STEPS or kind == "softmax" or get(name).convex: pass') == []


def test_nothing_in_a_file_is_executed() -> None:
    paths = [path for folder in ("src", "reproduction", "examples") for path in (ROOT / folder).rglob("*.py")]
    mine = [path for path in paths if "tests" not in path.parts]
    assert [(path.name, found) for path in mine for found in DANGER.findall(path.read_text(encoding="utf-8"))] == []
    planted = ("import pickle", "from joblib import load", "x = np.load(path)", "np.load(path, allow_pickle=True)",
               "torch.load(path)", "torch.load(path, weights_only=False)", "compile(text, '', 'exec')")  # fmt: skip
    assert all(map(DANGER.search, planted))


def test_few_values_reach_a_template_without_escapes() -> None:
    """These are the style and the scripts of the pages, JSON that cannot end its element, and pictures by Vega."""
    folders = ("src/closecall/report", "reproduction/pages")
    templates = [path.read_text() for folder in folders for path in (ROOT / folder / "templates").glob("*.jinja")]
    unescaped = {name for text in templates for name in re.findall(r"\{\{\s*([^{}|]+?)\s*\|[^{}]*\bsafe\b", text)}
    assert unescaped <= {"style", "script", "bundle", "walk_data", "chart.picture", "chart.specification"}
    assert "chart.picture" in unescaped
