"""The experiments beyond the tables: their numbers are right, nothing is run twice, pages follow from their tables."""

from __future__ import annotations

import doctest
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from closecall.data.synthetic import FIGURE1, figure1
from closecall.evaluate.grid import ROW
from closecall.objective import Problem, aggregate_value
from closecall.paper.cell import divide
from closecall.paper.plan import Cell
from closecall.paper.published import LOSSES, METHODS
from closecall.paper.record import Record
from closecall.paper.store import Store
from studies import (
    aggregates,
    common,
    compare,
    criterion,
    families,
    guard,
    helps,
    imbalance,
    multiclass,
    population,
    records,
    starts,
    yardsticks,
)
from studies.__main__ import NAMES, experiment, main
from tests.stress.fault_helpers import inline


def tight(page: str) -> str:
    """A page without the spaces that align its tables."""
    return re.sub(" +", " ", page)


def stored(tmp_path: Path, name: str, lines: Sequence[dict[str, Any]]) -> common.Settings:
    """Settings with a store in which a study finds these lines."""
    settings = common.Settings(tmp_path)
    assert common.resume(settings, name, lines, lambda key: {}, inline) == len(lines)
    return settings


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    settings, calls = common.Settings(tmp_path), []

    def work(key: dict[str, Any]) -> dict[str, Any]:
        calls.append(key["i"])
        if calls == [0, 1, 2]:
            raise KeyboardInterrupt
        return {"square": np.int64(key["i"] ** 2)}

    keys = [{"i": i} for i in range(4)]
    assert common.resume(settings, "squares", keys[:2], work, inline) == 2
    with pytest.raises(KeyboardInterrupt):
        common.resume(settings, "squares", keys, work, inline)
    assert common.resume(settings, "squares", keys, work, inline) == 2
    assert calls == [0, 1, 2, 2, 3]
    assert common.lines_of(settings, "squares") == [{"i": i, "square": i**2} for i in range(4)]
    assert common.lines_of(settings, "cubes") == []


def test_no_time_means_no_work(tmp_path: Path) -> None:
    settings = common.Settings(tmp_path, seconds=-1)
    assert common.resume(settings, "none", [{"i": 1}], lambda key: {}, inline) == 0


def lines_of(values: dict[str, list[float]], name: str = "a") -> list[dict[str, Any]]:
    return [
        {"set": name, "split": split, "method": method, "accuracy": value, "seconds": 1.0}
        for method, scores in values.items()
        for split, value in enumerate(scores)
    ]


def test_gains_are_paired_by_split() -> None:
    """A method that ran on fewer splits is compared on those, and the p is Nadeau and Bengio's."""
    first, second = [0.8, 0.6, 0.7, 0.9], [0.85, 0.62, 0.71]
    rows = compare.summarise(lines_of({"x": first, "y": second}), "x", ["x", "y"], test_over_train=0.5)
    row = rows[1]
    gains = 100 * (np.array(second) - first[:3])
    assert row["splits"] == 3
    assert row["gain"] == pytest.approx(gains.mean())
    assert row["gain_se"] == pytest.approx(stats.sem(gains))
    t = gains.mean() / np.sqrt((1 / 3 + 0.5) * gains.var(ddof=1))
    assert row["p"] == pytest.approx(2 * stats.t.sf(abs(t), 2))


def test_overall_counts_points_and_ranks() -> None:
    lines = [
        *lines_of({"x": [0.5, 0.5], "y": [0.52, 0.52]}, "a"),
        *lines_of({"x": [0.5, 0.5], "y": [0.48, 0.48]}, "b"),
        *lines_of({"x": [0.5, 0.5], "y": [0.505, 0.505]}, "c"),
    ]
    found = compare.overall(compare.summarise(lines, "x", ["x", "y"]), "x")[1]
    assert (found["up"], found["down"], found["sets"]) == (1, 1, 3)
    assert found["mean"] == pytest.approx(0.5 / 3)
    assert found["low"] <= found["mean"] <= found["high"]
    assert found["rank"] == pytest.approx(4 / 3)


#: Figure 1's overlap of "imbalance": the share of its positives that lies among the negatives.
OVERLAP = 20 * 0.05 / 1.05 / 500


@pytest.mark.parametrize(
    ("name", "best", "bayes"),
    [("easy", 0.01, 0.01), ("imbalance", OVERLAP, OVERLAP), ("outlier", 1 / 501, 0.0), ("ambiguous", 0.25, 0.25)],
)
def test_least_errors_of_the_populations(name: str, best: float, bayes: float) -> None:
    assert population.best_linear(name) == pytest.approx(best)
    assert population.bayes(name) == pytest.approx(bayes)


@pytest.mark.parametrize("name", FIGURE1)
def test_population_errors_are_those_of_a_large_sample(name: str) -> None:
    rng = np.random.default_rng(0)
    draws = [figure1(name, rng) for _ in range(100)]
    x, y = np.concatenate([X[:, 0] for X, _ in draws]), np.concatenate([labels for _, labels in draws])
    for slope, intercept in ((-3.0, 0.1), (2.0, 0.5), (0.0, -1.0)):
        sampled = float((y * (slope * x + intercept) <= 0).mean())
        assert population.error_of(name, slope, intercept) == pytest.approx(sampled, abs=0.01)


@pytest.mark.parametrize("method", ["average", "atk", "close", "top"])
def test_the_population_objective_is_the_aggregate(method: str) -> None:
    rng = np.random.default_rng(1)
    margins = rng.normal(size=(3, 40))
    losses = np.log1p(np.exp(-margins))
    values = population.objective(losses, margins, np.full(40, 1 / 40), method, 0.25, 50.0)
    problem = Problem("logistic", method, 10)
    expected = [aggregate_value(problem, row, constant=50.0) for row in margins]
    scale = 1 if method == "top" else 40
    assert values * scale == pytest.approx(expected)


def test_the_global_minimum_on_the_ambiguous_set() -> None:
    """Average is far from the best boundary even in the population; close-k with its constant M is within k of it."""
    average = population.error_of("ambiguous", *population.minimiser("ambiguous", "average", 1.0, 2e-5, 40))
    close = population.error_of("ambiguous", *population.minimiser("ambiguous", "close", 0.1, 2e-5, 40))
    assert average > 0.3
    assert close <= 0.25 + 0.1 + 0.01


def case(name: str, gain: float, family: str, **numbers: float) -> dict[str, Any]:
    blank = dict.fromkeys(helps.FEATURES, 0.0) | {"likely": 0.0, "splits": 5, "gain_se": 0.1, "protocol": "sound"}
    return {"set": name, "family": family, "gain": gain} | blank | numbers


def test_a_rule_is_never_fitted_on_the_family_it_is_asked_about() -> None:
    rows = [case(str(i), 2.0 * (i % 2), f"family {i // 4}", trial=float(i % 2)) for i in range(20)]
    seen: list[int] = []

    def fit(train: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append(len(train))
        return np.zeros(len(test)), np.zeros(len(test), dtype=bool)

    helps.crossed(rows, ["trial"], fit)
    assert seen == [16] * 5


def test_balanced_accuracy_and_auc_are_scikit_learns() -> None:
    rng = np.random.default_rng(8)
    y, score = rng.random(50) < 0.3, rng.integers(0, 9, 50).astype(float)
    assert float(helps.balanced(y, score > 4)) == pytest.approx(balanced_accuracy_score(y, score > 4))
    assert helps.auc(y, score) == pytest.approx(roc_auc_score(y, score))


def test_a_rule_finds_what_is_there_and_nothing_where_nothing_is() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(60, len(helps.KNOWN)))
    helped = rng.random(60) < 0.4
    rows = [case(str(i), 2.0 * helped[i], str(i), **dict(zip(helps.KNOWN, noise[i], strict=True))) for i in range(60)]
    groups = np.array([row["family"] for row in rows])
    nothing = helps.measured(helped, *helps.crossed(rows, helps.KNOWN, helps._logistic_scores), groups, draws=300)
    assert nothing["auc_low"] < 0.5 < nothing["auc_high"] + 0.1
    told = [row | {"trial": row["trial"] + 4 * helped[i]} for i, row in enumerate(rows)]
    for fit in (helps._logistic_scores, helps._stump_scores):
        found = helps.measured(helped, *helps.crossed(told, helps.KNOWN, fit), groups, draws=300)
        assert found["balanced_low"] > 0.8


def small_store(path: Path, sets: int = 6, splits: int = 4) -> None:
    """Records in which close decay is right three points more often than average, on every split of every set."""
    rng = np.random.default_rng(5)
    names = [f"pmlb:{name}" for name in ("monk1", "monk2", "monk3", "crx", "vote", "pima")][:sets]
    with Store(path, write=True) as store:
        store.begin_run({}, {})
        for name in names:
            for split in range(splits):
                cell = Cell("pmlb94", name, "x", split, "linear", "sound")
                rows = np.zeros(2 * (len(METHODS) + 1), ROW)
                rows["loss"] = np.repeat(LOSSES, len(METHODS) + 1)
                rows["method"] = [*METHODS, "average_exact_intercept"] * 2
                rows["k"], rows["alpha"] = 100, 1.0
                right = rng.integers(140, 150) + 6 * (rows["method"] == "close_decay")
                rows["test"], rows["validation"], rows["train"] = right, right, 2 * right + 20
                store.add(cell, Record(cell.key, "done", rows, (400, 200, 200), 3, 1.5))


def test_criterion_and_gaps_from_a_store(tmp_path: Path) -> None:
    small_store(tmp_path / "store.sqlite")
    settings = common.Settings(tmp_path, store=tmp_path, splits=4)
    rows = criterion.table(settings)
    joint = {(r["loss"], r["method"], r["against"]): r for r in rows if r["kind"] == "joint"}
    assert joint["logistic", "close_decay", "average"]["value"] == 1
    assert joint["hinge", "average", "close_decay"]["points"] == 0
    gaps = {r["method"]: r for r in rows if (r["kind"], r["loss"]) == ("gap", "logistic")}
    # 2 (right) + 20 of 400 against right of 200: training is better by 5 points.
    assert gaps["average"]["value"] == pytest.approx(5)
    assert gaps["close_decay"]["extra"] == pytest.approx(0, abs=1e-9)
    page = tight(criterion.page(rows, tmp_path / "figure.svg"))
    assert "100% (54% to 100%)" in page
    with pytest.raises(SystemExit, match="no data set"):
        criterion.table(common.Settings(tmp_path, store=tmp_path, splits=5))


def test_sets_with_too_few_splits_are_left_out(tmp_path: Path) -> None:
    small_store(tmp_path / "store.sqlite", sets=2, splits=3)
    finished = records.read_finished(tmp_path)
    assert records.scores(finished, "pmlb94", "sound", 4) is None
    found = records.scores(finished, "pmlb94", "sound", 2)
    assert found is not None
    assert found.splits == 2
    assert len(found.datasets) == 2


def test_when_page_from_a_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    rows = [
        case(f"set {i}", float(rng.normal(0.5, 1)), str(i), **{name: float(rng.normal()) for name in helps.FEATURES})
        for i in range(24)
    ]
    page = tight(helps.page(rows, tmp_path / "figure.svg"))
    helped = sum(row["gain"] >= 1 for row in rows)
    assert f"better than average on {helped} of them" in page
    assert "| always no | 0.50 (0.50 to 0.50) | 0.50 (0.50 to 0.50) | 0 of 0 |" in page


def test_tiny_runs_from_data_to_page(tmp_path: Path) -> None:
    """One small set, one or two splits: every step of the experiments that need no download."""
    options = ["--raw", str(tmp_path), "--out", str(tmp_path / "results"), "--sets"]
    main(["aggregates", *options, "corral", "--splits", "2", "--max-values", "0"])
    main(["starts", *options, "parity5", "--splits", "1", "--max-values", "0"])
    for name in ("aggregates", "starts"):
        page = (tmp_path / "results" / f"beyond-{name}.md").read_text()
        assert f"beyond/{name}.svg" in page
        assert (tmp_path / "results" / "beyond" / f"{name}.svg").read_text().startswith("<svg")
        before = page
        main([name, *options, "corral", "--page"])
        assert (tmp_path / "results" / f"beyond-{name}.md").read_text() == before
    lines = common.lines_of(common.Settings(tmp_path), "starts")
    average = {f["start"]: f["test"] for f in lines[0]["found"] if (f["loss"], f["method"]) == ("logistic", "average")}
    assert average["zeros"] == average["random"] == average["least_squares"]  # convex: the start cannot matter


def test_a_multiclass_method_and_its_page(tmp_path: Path) -> None:
    record = multiclass.run_one({"set": "iris", "split": 0, "method": "close_top_two"})
    assert record["accuracy"] > 0.85
    X, y = multiclass._with_outliers(*multiclass.SETS["iris"](), 0.1)
    assert len(X) == len(y) == 165
    rng = np.random.default_rng(7)
    lines = [
        {"set": name, "split": split, "method": method, "accuracy": float(rng.random()), "seconds": 0.1}
        for name in ("a", "b", "c")
        for split in range(3)
        for method in multiclass.METHODS
    ]
    rows = multiclass.table(stored(tmp_path, "multiclass", lines))
    at = {(line["set"], line["split"], line["method"]): line["accuracy"] for line in lines}
    expected = np.mean([at["a", s, "cv_top_two"] - at["a", s, "cv_ovr"] for s in range(3)])
    found = next(r for r in rows if (r["set"], r["method"], r["base"]) == ("a", "cv_top_two", "cv_ovr"))
    assert found["gain"] == pytest.approx(100 * expected)
    assert multiclass.page(rows, tmp_path / "figure.svg").count("3 sets") == len(multiclass.DUELS)


def test_what_a_guard_lets_through(tmp_path: Path) -> None:
    """A guard that nothing passes is tuned average; shares and gains are means over splits, then over sets."""
    record = guard.run_one({"name": "embedded:corral", "split": 0})
    assert record["kind"][guard.BASE] == "average"
    assert set(record["accuracy"]) == set(guard.METHODS)
    default = guard.method_of(guard.DEFAULT)
    lines = [
        {
            "name": f"pmlb:{name}", "split": split,
            "accuracy": dict.fromkeys(guard.METHODS, 0.8) | {default: 0.8 + gain, guard.method_of(0): 0.8 + 2 * gain},
            "seconds": dict.fromkeys(guard.METHODS, 0.1),
            "kind": {m: "close_decay" if m == default and split else "average" for m in guard.METHODS[:-1]},
        }
        for name, gain in (("a", 0.06), ("b", -0.01), ("c", 0.0))
        for split in range(4)
    ]  # fmt: skip
    rows = guard.table(stored(tmp_path, "guard", lines))
    found = guard.price(rows, default)
    assert found == {
        "left": pytest.approx(0.75), "gained": pytest.approx(2), "lost": pytest.approx(-1 / 3),
        "worst": pytest.approx(-1), "worst_set": "b",
    }  # fmt: skip
    text = tight(guard.page(rows, tmp_path / "figure.svg"))
    assert "leaves average in 75% of the fits and is +1.67 points better on average" in text
    assert "loses 1.00 points with the guard and 2.00 without" in text


def test_imbalance_page_from_lines(tmp_path: Path) -> None:
    lines = [
        {
            "split": split, "way": way, "seen": 0.5,
            "found": [
                {"loss": loss, "method": method, "k": 10.0, "alpha": 1.0, "train": 0.05, "validation": 0.06,
                 "test": 0.07 - 0.01 * split * (method == "close_decay")}
                for loss in LOSSES for method in imbalance.METHODS
            ],
        }
        for way in imbalance.WAYS for split in range(2)
    ]  # fmt: skip
    rows = imbalance.table(stored(tmp_path, "imbalance", lines))
    assert [row["gain_test"] for row in rows] == pytest.approx([0.5] * 2 * len(imbalance.WAYS))
    page = tight(imbalance.page(rows, tmp_path / "figure.svg"))
    assert page.count("| +0.50 ± 0.50 | +0.00 ± 0.00 |") == 2 * len(imbalance.WAYS)
    assert page.count("move the gain by +0.00 at most") == 2


@pytest.mark.shared_data
@pytest.mark.parametrize(("way", "protocol"), [(imbalance.PAPER, "paper"), (imbalance.SOUND, "sound")])
def test_the_two_protocols_are_those_of_figure_5(way: imbalance.Way, protocol: str, shared_data: Path) -> None:
    data = common.dataset(imbalance.NAME)
    cell = Cell("pmlb94", imbalance.NAME, data.checksum, 1, "linear", protocol, contamination="imbalance", level=12800)
    expected, found = divide(data, cell), imbalance.drawn(way, 1)
    assert all(np.array_equal(a, b) for a, b in zip(expected.X + expected.y, found.X + found.y, strict=True))


@pytest.mark.shared_data
def test_copies_that_stay_in_their_part_are_seen_in_it_only(shared_data: Path) -> None:
    crossing, staying = (imbalance.drawn(imbalance.WAYS[name], 0) for name in ("paper", imbalance.STAY))
    assert crossing.sizes == pytest.approx(staying.sizes, abs=2)  # rows and copies are rounded apart from each other
    assert imbalance.seen_before(crossing) > 0.8
    assert imbalance.seen_before(staying) < 0.2


def test_every_experiment_has_a_name() -> None:
    assert [experiment(name).name for name in NAMES if name != "cost"] == [name for name in NAMES if name != "cost"]
    assert {yardsticks.EXPERIMENT.page_name, starts.EXPERIMENT.page_name} == {
        "beyond-yardsticks.md",
        "beyond-starts.md",
    }
    assert aggregates.EXPERIMENT.splits >= 10


@pytest.mark.parametrize("module", [aggregates, common, compare, families, guard, helps, imbalance, population])
def test_examples_in_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
