"""The examples in CONTRIBUTING.md work as written: each block is appended to its file in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

BLOCK = re.compile(r'^```python title="(?:src/)?(?P<path>[^"]+)"\n(?P<body>.*?)^```', re.S | re.M)
BLOCKS = {match["path"]: match["body"] for match in BLOCK.finditer((ROOT / "CONTRIBUTING.md").read_text())}

PROBLEM = """
import numpy as np
from scipy.optimize import minimize
from closecall import AggregateLossClassifier, CloseKClassifierCV, Problem
from closecall.aggregates import get_aggregate
from closecall.losses import get_loss
from closecall.solvers import solve
from closecall.solvers.reference import solve_one
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3))
y = np.where(X[:, 0] + rng.normal(size=90) > 0.3, 1.0, -1.0)
three = np.digitize(X[:, 0], (-0.5, 0.5))
"""

LOSS = """
loss = get_loss("smooth_hinge")
def objective(w):
    margins = y * (X @ w[:3] + w[3])
    slopes = loss.slope(margins) * y
    return loss.value(margins).sum() + w[:3] @ w[:3] / 2, np.append(slopes @ X + w[:3], slopes.sum())
judge = minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9}).fun
problem = Problem("smooth_hinge", "average", 90, 1.0)
found = solve(X, y, [problem], max_iter=2000, tol=1e-10, penalize_intercept=False, dtype=np.float64)
slow = solve_one(X, y, problem, max_iter=3000, penalize_intercept=False)
for w in (np.append(found.coef[0], found.intercept[0]), np.append(slow.coef, slow.intercept)):
    assert objective(w)[0] <= judge * (1 + 1e-5), (objective(w)[0], judge)
for aggregate in ("close", "close_decay", "atk"):
    model = AggregateLossClassifier(loss="smooth_hinge", aggregate=aggregate, k=0.3, max_iter=200)
    assert model.fit(X, y).score(X, y) > 0.6
for way in ("ovr", "top_two"):
    model = AggregateLossClassifier(loss="smooth_hinge", multiclass=way, max_iter=300)
    assert model.fit(X, three).score(X, three) > 0.6
assert CloseKClassifierCV(loss="smooth_hinge").fit(X, y).score(X, y) > 0.6
"""

AGGREGATE = """
half, total = get_aggregate("half_close_decay"), 90
losses = rng.exponential(size=90)
order = np.argsort(abs(losses - np.log(2)))
expected = np.full(90, 20 / 90 / 2)
expected[order[:20]] += 0.5
assert np.allclose(half.weights(losses, threshold=np.log(2), k=20), expected)
everything = solve(X, y, [Problem("logistic", "average", 90, 1.0)], tol=1e-9, dtype=np.float64)
whole = solve(X, y, [Problem("logistic", "half_close_decay", 90, 1.0)], tol=1e-9, dtype=np.float64)
assert np.allclose(everything.coef, whole.coef, atol=1e-4), "with k = n it is average"
problem = Problem("logistic", "half_close_decay", 20, 1.0)
slow = solve_one(X, y, problem, max_iter=600)
fast = solve(X, y, [problem], max_iter=600, dtype=np.float64)
def objective(coef, intercept):
    losses = np.logaddexp(0, -y * (X @ coef + intercept))
    return half.weights(losses, threshold=np.log(2), k=20) @ losses + coef @ coef / 2
ends = [objective(slow.coef, slow.intercept), objective(fast.coef[0], fast.intercept[0])]
start = objective(everything.coef[0], everything.intercept[0])
assert max(ends) < start, (ends, start)
assert abs(ends[0] - ends[1]) < 0.02 * start, (ends, start)
assert AggregateLossClassifier(aggregate="half_close_decay", k=20).fit(X, y).score(X, y) > 0.6
assert AggregateLossClassifier(aggregate="half_close_decay", k=0.5, max_iter=300).fit(X, three).score(X, three) > 0.6
"""

DATASET = """
import numpy as np
from reproduction.protocol import available, load_dataset
data = load_dataset("majority7")
assert data.X.shape == (128, 7) and (data.y == (data.X.sum(axis=1) >= 4)).all()
assert "embedded:majority7" in available("embedded")
from closecall.cli import main
import sys
sys.argv = ["closecall", "reproduce", "--dry-run", "--datasets", "majority7"]
main()
"""

CONTENDER = """
import numpy as np, pandas as pd
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from closecall import compare
from closecall.cli import main
import sys
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
frame = pd.DataFrame(X, columns=list("ab")).assign(y=np.where((X ** 2).sum(axis=1) > 1.4, "out", "in"))
found = compare(frame, "y", splits=3, only=("naive-bayes",), jobs=1)
assert found.use == "naive_bayes", found
value = found.results.set_index("method").loc["naive Bayes", "accuracy (%)"]
assert abs(value / 100 - cross_val_score(GaussianNB(), X, frame["y"]).mean()) < 0.05
frame.to_csv("t.csv", index=False)
sys.argv = ["closecall", "fit", "t.csv", "--model", "naive_bayes", "--out", "m", "--splits", "0"]
main()
"""

COLUMN = """
import numpy as np, pandas as pd
from closecall.table.explain import explain
from closecall.table.model import TableModel
from closecall.table.table import read
rng = np.random.default_rng(0)
minutes = rng.integers(0, 1440, 300)
late = np.where(minutes > 720, "yes", "no")
times = [f"{each // 60}:{each % 60:02d}" for each in minutes]
frame = pd.DataFrame({"at": times, "b": rng.normal(size=300), "late": late})
frame.to_csv("t.csv", index=False)
table = read("t.csv")
assert [column.kind for column in table.columns] == ["clock", "number"], table
fitted = TableModel.fit(table, "logistic")
fitted.save("m")
again = TableModel.load("m")
assert (again.predict(table.frame)[0] == late).mean() > 0.97
pull = explain(again, table.frame)[1][0]
assert pull["column"] == "at" and abs(int(pull["flips_at"][:2]) - 12) <= 1, pull
"""


@pytest.mark.parametrize(
    ("path", "script"),
    [
        ("closecall/losses.py", PROBLEM + LOSS),
        ("closecall/aggregates.py", PROBLEM + AGGREGATE),
        ("reproduction/protocol/embedded.py", DATASET),
        ("closecall/table/contenders.py", CONTENDER),
        ("closecall/table/read/columns.py", COLUMN),
    ],
)
def test_a_newcomers_task_touches_one_file(path: str, script: str, tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="install closecall[bench]")
    for name in ("src/closecall", "reproduction"):
        place = tmp_path / Path(name).name
        shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    with (tmp_path / path).open("a") as file:
        file.write("\n\n" + BLOCKS[path])
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if script is DATASET:
        assert "majority7" in done.stdout


def test_every_task_is_described() -> None:
    package = {f"closecall/{name}.py" for name in ("losses", "aggregates", "table/contenders", "table/read/columns")}
    assert set(BLOCKS) == package | {"reproduction/protocol/embedded.py"}
