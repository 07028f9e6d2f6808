"""The parts of the commands: columns, preprocessing, verdicts, intervals."""

from pathlib import Path

import numpy as np
import pytest

from closecall.report.text import cell
from closecall.stats import corrected_test
from closecall.table.conclude import Result, judge
from closecall.table.contenders import PLAIN
from closecall.table.measure import METRICS, sigmoids
from closecall.table.preprocess import MAX_LEVELS, Preprocessor
from closecall.table.read.columns import Column, columns_of, numbers
from closecall.table.read.sheet import sniff
from closecall.table.splits import stratified
from closecall.table.table import read, stream
from tests.table.helpers import pd, platt


@pytest.mark.parametrize(
    ("values", "kind", "form"),
    [
        (["1", "2.5", " 3 ", "NA"], "number", ""),
        (["1", "n/a", "#N/A", "<NA>", "2.5"], "number", ""),
        (["1,5", "1.002,25", "3"], "number", ","),
        (["0,125", "1,250", "2,375", "3,500"], "number", ","),
        (["2024-01-31", "2024-02-01T10:00:00Z"], "date", "ISO8601"),
        (["31.01.2024", "01.02.2024"], "date", "%d.%m.%Y"),
        (["01/31/2024", "02/01/2024"], "date", "%m/%d/%Y"),
        (["a", "b", "a"], "nominal", ""),
        (["1", "2", "many", "2"], "nominal", ""),
        (["10.0.0.1", "10.0.0.2", "10.0.0.1"], "nominal", ""),
    ],
)
def test_kinds(values: list[str], kind: str, form: str) -> None:
    (column,), _ = columns_of(pd.DataFrame({"c": values}, dtype=str), ["c"])
    assert (column.kind, column.form) == (kind, form)


def test_words_among_numbers_are_missing_values() -> None:
    """A column in which 11 % of the cells are ``k.A.`` contains numbers, not names."""
    values = ["k.A." if row % 9 == 0 else f"{row / 7:.1f}".replace(".", ",") for row in range(120)]
    (column,), notes = columns_of(pd.DataFrame({"c": values}), ["c"])
    assert (column.kind, column.form) == ("number", ",")
    assert notes == ("'c' contains numbers; 14 values such as 'k.A.' count as missing",)


def test_an_ambiguous_date_is_noted() -> None:
    (column,), (note,) = columns_of(pd.DataFrame({"d": ["01/02/2024", "03/04/2024"]}), ["d"])
    assert column.form == "%d/%m/%Y"
    assert "month/day/year" in note


def test_identifiers_can_be_kept() -> None:
    frame = pd.DataFrame({"n": [str(7 * i) for i in range(30)], "x": [f"{i / 4}" for i in range(30)]})
    columns, (note,) = columns_of(frame, ["n", "x"])
    assert [column.name for column in columns] == ["x"]
    assert "--keep" in note
    assert len(columns_of(frame, ["n", "x"], keep=["n"])[0]) == 2


def test_a_date_in_any_format_is_the_same_number() -> None:
    typed = numbers(pd.Series(pd.to_datetime(["2024-01-31"])), Column("d", "date"))
    zoned = numbers(pd.Series(pd.to_datetime(["2024-01-31T02:00:00+02:00"])), Column("d", "date"))
    written = numbers(pd.Series(["31.01.2024"]), Column("d", "date", "%d.%m.%Y"))
    days = (np.datetime64("2024-01-31") - np.datetime64("1970-01-01")).astype(int)
    assert typed.tolist() == zoned.tolist() == written.tolist() == [days]


@pytest.mark.parametrize(("text", "separator"), [("a;b\n1,5;2", ";"), ("a\tb\n1,5\t2", "\t"), ("a|b\n1|2", "|")])
def test_separators(text: str, separator: str) -> None:
    assert sniff(text.encode(), "it") == (separator, ["a", "b"])


def test_preprocessing_equals_that_of_pandas() -> None:
    """Missing cells become the mean or the most frequent name, and names become columns, one fewer if there are two."""
    rng = np.random.default_rng()
    frame = pd.DataFrame({"a": rng.normal(size=200), "b": rng.choice([*"xyyzz"], 200), "c": rng.choice([*"ppq"], 200)})
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    filled = frame.fillna({"a": frame["a"].mean(), "b": frame["b"].mode()[0], "c": frame["c"].mode()[0]})
    expected = pd.get_dummies(filled, dtype=float).drop(columns="c_p").to_numpy()
    columns = [Column("a", "number"), *(Column(name, "nominal") for name in "bc")]
    assert Preprocessor.fit(frame, columns, squashed=False).matrix(frame)[:, 0].std() == pytest.approx(1)
    for squashed in (False, True):  # squashed numbers have the median in missing cells
        found = Preprocessor.fit(frame, columns, squashed).matrix(frame)
        # The scale of indicator columns has a floor, so they agree only up to a factor.
        ours, theirs = ((X - X.mean(axis=0)) / X.std(axis=0) for X in (found, expected))
        np.testing.assert_allclose(ours[:, squashed:], theirs[:, squashed:], atol=1e-12)


def test_free_text_is_bounded() -> None:
    frame = pd.DataFrame({"t": [f"word {i % 1200}" for i in range(3600)]})
    recipe = Preprocessor.fit(frame, [Column("t", "nominal")])
    assert recipe.matrix(frame).shape == (3600, MAX_LEVELS + 1)


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="install closecall[bench]")
    days = pd.to_datetime(["2024-01-01", "2024-02-01", None])
    rows = {"when": days, "n": [1.5, np.nan, 2.0], "flag": [True, False, False], "class": ["x", "y", "y"]}
    frame = pd.concat([pd.DataFrame(rows)] * 10)
    frame.to_parquet(tmp_path / "t.parquet")
    table = read(str(tmp_path / "t.parquet"))
    assert [column.kind for column in table.columns] == ["date", "number", "nominal"]
    assert [len(piece) for piece in stream(str(tmp_path / "t.parquet"), 12)] == [12, 12, 6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("=1+1", "'=1+1"), ("@x", "'@x"), ("-1.5e3", "-1.5e3"), ("+a", "'+a"), (" =x", "' =x"), ("\uff1dx", "'\uff1dx"),
     ("\t=x", "\\t=x"), ("<b>", "<b>")],
)  # fmt: skip
def test_cells(text: str, expected: str) -> None:
    assert cell(text) == expected


def result(method: str, scores: list[float]) -> Result:
    family = {"random_forest": "tree", "majority": "majority"}.get(method, "linear")
    return Result(method, method, tuple(scores), 1.0, 1.0, family=family)


def verdict_of(**scores: list[float]) -> tuple[object, ...]:
    found = {name: result(name, values) for name, values in scores.items()}
    return judge(found, PLAIN["logistic"], METRICS["accuracy"], "yes")


@pytest.mark.parametrize(
    ("close", "tree", "majority", "verdict", "use"),
    [(0.0, 0.0, -0.2, "logistic", "logistic_regression"), (0.05, 0.05, -0.2, "close-k", "close_k"),
     (0.0, 0.1, -0.2, "tree", "random_forest"), (-0.05, 0.0, -0.2, "logistic", "logistic_regression"),
     (0.07, 0.02, -0.2, "close-k", "close_k"), (0.02, 0.07, -0.2, "tree", "random_forest"),
     (0.0, 0.0, 0.0, "nothing", "majority"), (-0.02, -0.01, 0.01, "nothing", "majority")],
)  # fmt: skip
def test_verdicts_rank_gains_by_size(close: float, tree: float, majority: float, verdict: str, use: str) -> None:
    noise = np.tile([0.0, 0.004, -0.004], 4)
    base = 0.7 + np.repeat([0.0, 0.01], 6)
    found = verdict_of(
        logistic_regression=list(base), close_k=list(base + close + noise * (close < 0.05 or tree < 0.05)),
        random_forest=list(base + tree - noise), majority=list(base + majority - noise),
    )  # fmt: skip
    assert found[:2] == (verdict, use)
    gains = [each.mean for each in found[5]]
    assert gains == sorted(gains, reverse=True)
    if verdict == "nothing":
        assert "'yes'" in found[2]
    if verdict == "tree":
        assert "if the model has to be linear" in found[3]


def test_the_interval_inverts_the_corrected_test() -> None:
    """A constant just outside the interval differs at p < 0.05, one just inside does not."""
    scores = np.array([0.8, 0.82, 0.79, 0.85, 0.81])
    found = result("a", list(scores))
    for shift, differs in ((1.01, True), (0.99, False)):
        other = np.full(5, found.mean + shift * found.half_width)
        assert (corrected_test(scores, other) < 0.05) == differs


def test_parts_have_every_class() -> None:
    codes = np.repeat([0, 1, 2], [50, 4, 9])
    parts = stratified(codes, np.random.default_rng(0))
    assert sorted(np.concatenate(parts)) == list(range(63))
    assert all(set(codes[part]) == {0, 1, 2} for part in parts)


@pytest.mark.parametrize("cv", [None, 3, [(np.arange(6), np.arange(6, 9))]])
def test_messages_show_a_class_as_the_user_wrote_it(cv: object) -> None:
    from closecall import CloseKClassifierCV

    with pytest.raises(ValueError, match=r"class '[bc]'") as raised:
        CloseKClassifierCV(cv=cv).fit(np.arange(9.0)[:, None], np.array(list("aaaaaabbc")))
    assert "np.str_" not in str(raised.value)


def test_report_paths() -> None:
    from closecall.table.report import page_path

    assert page_path(None, "-").as_posix() == "closecall-compare/standard-input/report.html"
    assert page_path(None, "/x/../etc/p\x1b w.csv.gz").as_posix() == "closecall-compare/p__w/report.html"
    assert page_path(None, "..").parent.parent == Path("closecall-compare")


def test_an_uncertain_gain_is_not_called_equal() -> None:
    """Two scattered splits leave the question open; twenty equal ones settle it."""
    few = verdict_of(logistic_regression=[0.7, 0.8], close_k=[0.75, 0.95], random_forest=[0.7, 0.8])
    assert few[0] == "logistic"
    assert few[2] == "use plain logistic regression: close-k shows no clear gain"
    wave = 0.7 + 0.01 * np.sin(np.arange(20))
    many = verdict_of(logistic_regression=list(wave), close_k=list(wave[::-1]), random_forest=list(wave))
    assert many[2] == "use plain logistic regression: it is as good as close-k"


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_equal_those_of_scikit_learn(classes: int) -> None:
    """Every metric equals that of scikit-learn."""
    from sklearn import metrics as judge_of

    rng = np.random.default_rng(classes)
    truth, logits = rng.integers(0, classes, 80), rng.normal(size=(2, 80, classes))
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    for row in range(2):
        said, chance = logits[row].argmax(axis=1), chances[row]
        area = chance[:, 1] if classes == 2 else chance
        expected = {
            "accuracy": judge_of.accuracy_score(truth, said), "f1": judge_of.f1_score(truth, said, average="macro"),
            "balanced_accuracy": judge_of.balanced_accuracy_score(truth, said),
            "log_loss": -judge_of.log_loss(truth, chance),
            "auc": judge_of.roc_auc_score(truth, area, multi_class="ovr"),
        }  # fmt: skip
        for name, value in expected.items():
            assert METRICS[name].value(truth, np.log(chances[row])) == pytest.approx(value), name


def test_sigmoids_are_platts() -> None:
    """The likelihood of Platt's smoothed targets, minimised by SciPy, has the same slope and offset."""
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 200)
    for scores in (3 * truth + rng.normal(size=200), rng.normal(size=200), 9.0 * truth - 4):
        (found,) = sigmoids(scores[:, None], truth)
        np.testing.assert_allclose(found, platt(scores, truth == 1), rtol=2e-3, atol=2e-3)
