"""Splits by groups and by time: models, searches and calibration never see the group or the time of a test row."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from closecall import compare
from closecall.linear.search import ALPHAS
from closecall.table.compare import Split
from closecall.table.conclude import Result, clearly_learns
from closecall.table.contenders import MAJORITY, Entry
from closecall.table.content import close_calls
from closecall.table.divide import Order
from closecall.table.measure import METRICS
from closecall.table.model import TableModel
from closecall.table.read.dataset import DataError
from closecall.table.report import _lead
from closecall.table.table import read
from closecall.table.train import _pairs, train, why_none
from closecall.table.tuning import How, SplitData, judged as judged_as
from tests.table.helpers import LINEAR, QUICK, Run, platt, written
from tests.table.test_keep import judged


@pytest.mark.parametrize("seed", range(12))
def test_no_time_is_in_two_parts(seed: int) -> None:
    """With few distinct times, nearly every possible cut lies between rows of the same day."""
    rng = np.random.default_rng(seed)
    rows, splits = int(rng.integers(60, 200)), int(rng.integers(2, 5))
    times = rng.integers(0, int(rng.integers(12, 40)), rows).astype(float)
    codes = rng.integers(0, int(rng.integers(2, 4)), rows)
    order = Order("time", times)
    for first, second, test in order.divisions(codes, splits, 0):
        assert times[first].max() < times[second].min()
        assert times[second].max() < times[test].min()
        known = np.concatenate([first, second])
        pairs, groups = order.inner(codes, known)
        assert groups is None
        assert pairs
        for learn, tried in pairs:
            assert times[known[learn]].max() < times[known[tried]].min()
            assert set(codes[known[learn]]) == set(codes[known])


@pytest.mark.parametrize("seed", range(6))
def test_no_group_is_in_two_parts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, codes = rng.integers(0, 30, 200), rng.integers(0, 2, 200)
    order = Order("groups", values)
    for parts in order.divisions(codes, 3, seed):
        for first, second in ((0, 1), (0, 2), (1, 2)):
            assert not set(values[parts[first]]) & set(values[parts[second]])
        known = np.concatenate(parts[:2])
        cv, groups = order.inner(codes, known)
        for learn, tried in cv.split(known, codes[known], groups):
            assert not set(groups[learn]) & set(groups[tried])


def test_few_groups_are_divided_in_different_ways_or_refused() -> None:
    """Repeating a split would make results look more certain than they are."""
    values, codes = np.repeat(np.arange(9), 10), np.tile([0, 1], 45)
    parts = Order("groups", values).divisions(codes, 8, 0)
    assert len({tuple(np.unique(values[test])) for *_, test in parts}) == len(parts) > 3
    five = Order("groups", np.repeat(np.arange(5), 18))
    assert five.few == 5
    with pytest.raises(DataError, match="5 groups are too few to tell a gain from chance; 6 are needed"):
        five.divisions(codes, 2, 0)
    assert "no estimate: 5 groups are too few" in why_none(Any, 2, five)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["groups", "time"])
def test_dependent_rows_are_weaker_evidence(kind: str) -> None:
    """Noise shared by all rows of a group or a period is no evidence that a model learns anything."""
    found = {"rows": 0, kind: 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        member = np.repeat(np.arange(16), 25)
        truth, said = (rng.integers(0, 2, 16)[member] for _ in range(2))
        entries = {"a": Entry("a", "", 0.5, said), MAJORITY: Entry(MAJORITY, "", 0.5, np.zeros(400, dtype=int))}
        split = Split(entries, np.arange(400), truth, 100, 100)
        asked = [Result("a", "a", (0.5,))]
        order = Order(kind, member if kind == "groups" else np.arange(400.0))
        for name, by in (("rows", Order()), (kind, order)):
            found[name] += clearly_learns([split], asked, by.units(400))
    assert found["rows"] > 15
    assert found[kind] <= 7


def test_too_few_times_are_reported_with_advice(run: Run) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.standard_normal():.3f},{2000 + row % 8},{'ab'[row % 3 > 0]}" for row in range(160)]
    words = "8 distinct times are too few for 10 splits by time; use --splits 4"
    run.refused(words, "compare", written(rows, "x,year,class"), "--time", "year", *LINEAR, "--splits", 10)
    run.compare("t.csv", "--time", "year", *LINEAR)
    with pytest.raises(DataError, match="1 distinct time are too few for 2 splits by time; add rows with different"):
        Order("time", np.ones(40)).divisions(np.arange(40) % 2, 2, 0)


def test_a_class_that_appears_late_is_an_error(run: Run) -> None:
    """If a class occurs only at the end, there are no folds by time, and random folds would look ahead."""
    rng = np.random.default_rng(1)
    rows = [f"{x:.3f},{2000 + row},{'ab'[row % 2]}" for row, x in enumerate(rng.standard_normal(40))]
    table = written([*rows, *["1.5,2100,c"] * 5], "x,when,class")
    for model in ("logistic_regression", "close_k"):
        words = "merge or drop the classes that appear late"
        run.refused(words, "fit", table, "--out", "m", "--time", "when", "--splits", 0, "--model", model)


@pytest.mark.parametrize("name", ["logistic_regression", "linear_svc", "close_k", "atk"])
def test_calibration_learns_from_earlier_rows_only(run: Run, name: str) -> None:
    """Each sigmoid matches SciPy's fit to the scores that models of earlier days give to later rows."""
    rng = np.random.default_rng(3)
    days = np.sort(rng.integers(0, 30, 150))
    X = rng.normal(size=(150, 3))
    y = np.where(X[:, 0] + rng.normal(size=150) + 0.05 * (days - 15) > 0, "b", "a")
    lines = [
        ",".join(f"{v:.5f}" for v in row) + f",2024-01-{day + 1:02d},{label}"
        for row, day, label in zip(X, days, y, strict=True)
    ]
    shuffled = [lines[place] for place in rng.permutation(150)]
    order, table = Order.of(read(written(shuffled, "x0,x1,x2,when,class")), time="when")
    model = TableModel.fit(table, name, order=order)
    Z, labels, times = model.recipe.matrix(table.frame), table.labels.astype(str), order.values
    cuts = np.unique(times)
    half = len(times) // 2
    starts = np.array([(times < cut).sum() for cut in cuts[1:]])
    wanted = np.linspace(half, len(times), 5).astype(int)[:-1]
    edges = [*sorted({int(starts[np.abs(starts - place).argmin()]) for place in wanted}), len(times)]
    rank, scores = np.argsort(times, kind="stable"), np.full(len(times), np.nan)
    for first, last in pairwise(edges):
        learn, tried = rank[:first], rank[first:last]
        assert times[learn].max() < times[tried].min()
        fitted = model.classifier
        fixed = judged(fitted) if hasattr(fitted, "best_params_") else clone(fitted).set_params(calibration=None)
        scores[tried] = fixed.fit(Z[learn], labels[learn]).decision_function(Z[tried])
    seen = np.isfinite(scores)
    expected = platt(scores[seen], labels[seen] == "b")
    np.testing.assert_allclose(model.classifier.calibrators_[0], expected, rtol=0.03, atol=0.03)


def test_a_model_without_probabilities_is_tuned_by_auc() -> None:
    """With a scorer that needs probabilities, GridSearchCV scores every setting as NaN and returns the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = np.where(X[:, 0] + rng.normal(size=200) > 0, "b", "a")
    search = GridSearchCV(
        LinearSVC(random_state=0), {"C": [1 / alpha for alpha in sorted(ALPHAS, reverse=True)]},
        cv=_pairs(X, y, How()), scoring="roc_auc", refit=False,
    ).fit(X, y)  # fmt: skip
    assert np.ptp(search.cv_results_["mean_test_score"]) > 0
    assert train("linear_svc", X, y, How(metric="auc")).alpha == pytest.approx(1 / search.best_params_["C"])


def test_auc_ranks_tiny_probabilities() -> None:
    """Naive Bayes on many columns gives probabilities such as 1e-30, which must still be ranked."""
    rng = np.random.default_rng(8)
    y = np.arange(90) % 3
    X = np.tile(rng.normal(size=(90, 2)) + 0.7 * y[:, None], 40)  # copies, which make it much too certain
    parts = [np.flatnonzero(np.arange(90) // 30 == part) for part in range(3)]
    data = SplitData([X[part] for part in parts], [y[part] for part in parts], 3)
    model = GaussianNB().fit(*data.known)
    chances = model.predict_proba(data.X[2])
    assert (chances < 1e-6).mean() > 0.2
    expected = roc_auc_score(data.y[2], chances, multi_class="ovr")
    found = METRICS["auc"].value(data.y[2], judged_as(model, data, 2, METRICS["auc"]))
    assert found == pytest.approx(expected, abs=1e-12)


def played(target: str = "class", **order_by: str) -> Any:
    """Compare close-k with the plain model on two splits of a small table with groups and times."""
    rng = np.random.default_rng(2)
    rows = [f"{row % 2 + rng.standard_normal():.3f},{row % 20},{row}.5,{'ab'[row % 2]}" for row in range(80)]
    table = written(rows, f"x,g,when,{target}")
    return compare(table, target, splits=2, only=("logistic_regression",), jobs=1, **order_by)


@pytest.mark.parametrize(
    ("order_by", "words"),
    [
        ({}, "75 % of the rows and scored on the rest, 2 times"),
        ({"time": "when"}, "tuned on earlier rows and scored on later ones, 2 times"),
        ({"groups": "g"}, "with no group in both, 2 times"),
    ],
)
def test_the_page_states_how_rows_were_divided(run: Run, order_by: dict[str, str], words: str) -> None:
    assert words in _lead(played(**order_by))


def test_ranks_do_not_depend_on_rounding(run: Run) -> None:
    """Among equal methods the plain model ranks first, and no gain is a negative zero."""
    rows = [f"{row % 2}.{row % 7},{'ab'[row % 2]}" for row in range(60)]
    found = run.compare(written(rows, "x,lead"), *QUICK, "--only", "logistic_regression,k_nn")
    assert next(iter(found)) == "logistic_regression"
    assert "-0.0" not in run.records()[-1]["reason"]


@pytest.mark.parametrize("target", ["lead", "row", "prediction", "class"])
def test_a_target_may_have_the_name_of_a_column_of_the_page(run: Run, target: str) -> None:
    found = played(target)
    header, rows = close_calls(found.table, found.splits, ("a", "b"))
    assert header[:4] == ("row", target, "prediction", "lead")
    assert set(header[4:]) == {"x", "g", "when"}
    for row, label, said, lead, *_ in rows:
        assert found.table.labels[int(row) - 1] == label
        assert said.partition(" ")[0] in ("a", "b")
        assert float(lead) >= 0


def test_fit_states_why_there_is_no_estimate(run: Run) -> None:
    rows = [f"{row}.5,{row % 3},{'a' if row < 9 else 'b'}" for row in range(12)]
    run.fit(written(rows, "x,z,class"), "--splits", 5)
    assert "no estimate: the class 'b' has 3 rows, and 4 are needed" in run.err
    run.fit("t.csv")
    assert "estimate" not in run.err


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_huge_and_tiny_numbers(run: Run, factor: float) -> None:
    """Squares of such numbers overflow or underflow; the result must equal that of the same table in another unit."""
    rng = np.random.default_rng(6)
    x, labels = rng.normal(size=(60, 2)) + (np.arange(60) % 2)[:, None], np.arange(60) % 2
    found = []
    for unit in (1.0, factor):
        rows = [
            f"{a!r},{'' if row % 9 == 0 else repr(b)},{'ab'[label]}"
            for row, ((a, b), label) in enumerate(zip((x * unit).tolist(), labels, strict=True))
        ]
        values = run.compare(written(rows, "x,z,class"), *LINEAR)["logistic_regression"]["values"]
        assert "Warning" not in run.err
        run.fit("t.csv", "--model", "logistic_regression")
        found.append((values, [row["prediction"] for row in run.predict("t.csv")]))
    assert found[0] == found[1]
