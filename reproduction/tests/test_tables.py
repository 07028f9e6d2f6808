"""Tables, files and the page: numbers are correct, missing data sets are listed, and hostile names are harmless."""

import csv
import html
import io
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from closecall.report import charts
from closecall.report.text import visible
from reproduction.pages import figure1 as synthetic, figures, tables
from reproduction.pages.formats import WIDTH, Table, to_csv, to_markdown
from reproduction.pages.report import write_report
from reproduction.pages.sections import build
from reproduction.protocol import stats
from reproduction.protocol.plan import RunOptions, Size
from reproduction.protocol.protocol import compare, win_fractions
from reproduction.protocol.published import LOSSES, METHODS, PAIR_TABLES, table3_error
from reproduction.run.campaign import stored_jobs
from reproduction.run.jobs import Job, prepare
from reproduction.run.record import Record
from reproduction.run.scores import ALL_METHODS, Archive, Hole, Scores
from reproduction.run.store import Store
from reproduction.tests.helpers import job_of, made_scores, rows_of

HOSTILE = "file:../<script>alert('&')</script>|`=cmd`.csv"


def made(names: tuple[str, ...] = ("pmlb:monk3", "pmlb:adult", "pmlb:flare")) -> Scores:
    """Return scores with close decay ahead by 10 points on the first set and level on the others."""
    holes = (Hole("openml100:3", "not at hand"), Hole(HOSTILE, "1 of 25 cells failed, e.g. ValueError: <b>"))
    return made_scores(names, np.where(np.arange(len(names)) == 0, 0.1, 0.0), base=0.7, holes=holes)


def all_tables(scores: Scores) -> list[Table]:
    published = [PAIR_TABLES["table1"], PAIR_TABLES["table4"]]
    thirds = [tables.error_table(scores, loss, published=True) for loss in LOSSES]
    return [*tables.suite_tables(scores, published), *thirds]


def test_pair_table_is_beside_the_published_one() -> None:
    scores = made()
    table = tables.pair_table(scores, "hinge", "significant", PAIR_TABLES["table1"])
    place = METHODS.index("average"), METHODS.index("close_decay")
    ours = win_fractions(compare(scores.test("hinge"), METHODS, "sound"), METHODS, "significant")[place]
    theirs = PAIR_TABLES["table1"].fractions("linear", "hinge")[place]
    assert ours == pytest.approx(1 / 3)
    assert table.rows[place[0]][1 + place[1]] == f"{ours:.2f} ({theirs:.2f})"
    (record,) = [r for r in table.records if (r["beaten"], r["by"]) == ("average", "close_decay")]
    assert (record["wins"], record["datasets"]) == (1, 3)
    assert record["difference"] == pytest.approx(ours - theirs)
    # 0.25 of 93 sets is 23 sets.
    assert (record["published_low"], record["published_high"]) == stats.fraction_interval(23, 93)
    assert any("monk" not in note and "Data sets left out (2)" in note for note in table.notes)


def test_error_table_shows_errors_stars_and_table3() -> None:
    scores = made()
    table = tables.error_table(scores, "logistic", published=True)
    error = 100 * (1 - scores.test("logistic", ("close_decay",))[0].mean())
    published = table3_error("monk3", "logistic", "close_decay")
    assert published is not None
    place = 1 + METHODS.index("close_decay")
    assert [row[0] for row in table.rows] == ["monk3", "  paper", "  difference", "adult", "flare"]
    assert [row[place] for row in table.rows[:3]] == [f"{error:.2f}*+", "11.01", f"{error - published:+.2f}"]
    assert not {"*", "+"} & set("".join(table.rows[3]))
    gain = 100 * (scores.test("logistic", ("close_decay",)) - scores.test("logistic", ("atk",)))[0].mean()
    claim = f"better than atk on 1 (monk3 by {gain:.1f} points) and as good as atk on 2 (adult, flare)"
    assert any(claim in note for note in table.notes)
    assert len(tables.error_table(scores, "logistic").rows) == 3


def test_gain_table_leads_with_the_largest_gain_and_its_p() -> None:
    table = tables.gain_table(made(), "logistic")
    assert table.rows[0][0] == "monk3"
    assert float(table.rows[0][3]) == pytest.approx(10, abs=1.5)
    assert table.rows[0][4] == "< 0.0001"
    p = stats.holm(stats.corrected_test(made().test("logistic")[:, 3], made().test("logistic")[:, 1]))
    assert table.records[0]["p"] == pytest.approx(p[0])


def test_method_table_counts_wins_and_gaps() -> None:
    scores = made()
    table = tables.method_table(scores, "hinge")
    decay = table.records[METHODS.index("close_decay")]
    assert (decay["wins"], decay["losses"], decay["joint_wins"]) == (1, 0, 1)
    gap = scores.of("train", "hinge", ("close_decay",)).mean() - scores.test("hinge", ("close_decay",)).mean()
    assert decay["gap"] == pytest.approx(gap)
    assert [record["method"] for record in table.records] == list(ALL_METHODS)
    assert np.mean([record["rank"] for record in table.records]) == pytest.approx((len(ALL_METHODS) + 1) / 2)


@pytest.mark.parametrize("table", all_tables(made()), ids=lambda table: table.name)
def test_markdown_fits_80_columns_and_csv_has_every_record(table: Table) -> None:
    lines = to_markdown(table).splitlines()
    wide = [line for line in lines if len(line) > WIDTH and not line.startswith("#")]
    # Only a single word that is longer than a line may exceed the width.
    assert all(max(map(len, line.split())) > WIDTH - 2 for line in wide), wide
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == len(table.records)
    for row, record in zip(rows, table.records, strict=True):
        for name, value in record.items():
            if isinstance(value, float) and not np.isnan(value):
                assert float(row[name]) == value  # unrounded


def test_long_and_hostile_names_are_text_everywhere() -> None:
    names = (HOSTILE, "pmlb:GAMETES_Epistasis_2-Way_1000atts_0.4H_EDM-1_EDM-1_1")
    table = tables.error_table(made(names), "hinge", published=True)
    text = to_markdown(table)
    assert "<script" not in text.replace(r"\<script", "")
    assert "p < 0.05" in text
    assert all(len(line) <= WIDTH for line in text.splitlines() if line.startswith("|"))


NASTY = (
    "=cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>", "[a](http://b)", "![a](b)", "*bold* _it_ `code`", "&lt;b&gt;",
    "\x1b[31mred", "a\u202eb", "a\nb", "[10pt]", "*", "--", "\\input{x}", "# head", "1. one", "- item", "a|b",
    "~~gone~~", "\x00", "===", "---", "@x",
)  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_text_for_every_reader(name: str) -> None:
    """Markdown and spreadsheets show the name itself, with control characters escaped."""
    markdown = pytest.importorskip("markdown")
    table = Table("t", "T", ("data set", "x"), ((name, "1"), ("plain", "2")), ({"dataset": name},), (name,))
    spelt = visible(name).replace("\n", " ")
    page = markdown.markdown(to_markdown(table), extensions=["tables"])
    texts = [html.unescape(text).strip() for text in re.split(r"</?\w[^>]*>", page)]
    assert texts.count(spelt) == 2, page  # in the table and below it
    assert set(re.findall(r"<(\w+)", page)) == {"h2", "table", "thead", "tr", "th", "tbody", "td", "p"}
    (_, value) = csv.reader(io.StringIO(to_csv(table)))
    assert value[0].removeprefix("'") == visible(name).replace("\n", "\\n")
    assert not value[0].startswith(("=", "+", "-", "@"))


def toy_store(
    path: Path, names: tuple[str, ...], splits: int = 3, protocols: tuple[str, ...] | None = None
) -> tuple[Store, Job]:
    """Return a store with invented rows for an overview, in which the last data set's last split failed."""
    job = job_of(names, splits, protocols=protocols, holes=[Hole("embedded:gone", "no file")])
    store = Store(path, write=True)
    store.begin_run(
        {"jobs": [job.as_json()]},
        {"python": "3", "revision": None, "packages": {}, "blas": [], "platform": "x", "cores": 2},
    )
    rng = np.random.default_rng(1)
    for cell in job.cells():
        if cell.dataset == names[-1] and cell.split == splits - 1:
            store.add(cell, Record(cell.key, "failed", error="ValueError: <i>constant</i> columns"))
            continue
        rows = rows_of([*product(LOSSES, METHODS)] * 2, k=np.repeat([10, 50], 10), alpha=1.0)  # two settings
        for part, size in zip(("train", "validation", "test"), (50, 25, 25), strict=True):
            rows[part] = rng.integers(size // 2, size, len(rows))
        store.add(cell, Record(cell.key, "done", rows, (50, 25, 25), 4, 0.1))
    return store, job


def test_gather_takes_what_validation_chose_from_complete_sets(tmp_path: Path) -> None:
    store, job = toy_store(tmp_path / "s.sqlite", ("embedded:a", "embedded:b", "embedded:c"))
    with store:
        found = Archive(store).gather(job.cells(), job.holes)
        assert [(scores.protocol, scores.datasets) for scores in found] == [
            ("paper", ("embedded:a", "embedded:b")),
            ("sound", ("embedded:a", "embedded:b")),
        ]
        reasons = {hole.dataset: hole.why for hole in found[0].holes}
        assert reasons["embedded:gone"] == "no file"
        assert "1 of 3 cells failed, e.g. ValueError: <i>constant</i> columns" in reasons["embedded:c"]
        cell = next(c for c in job.cells() if (c.dataset, c.split, c.protocol) == ("embedded:b", 2, "sound"))
        (record,) = store.records([cell.key])
        pair = record.rows[(record.rows["loss"] == "hinge") & (record.rows["method"] == "atk")]
        best = max(pair, key=lambda row: (row["validation"], row["k"]))
        assert found[1].test("hinge", ("atk",))[1, 0, 2] == best["test"] / 25
        assert found[1].of("k", "hinge", ("atk",))[1, 0, 2] == best["k"] / 50
        assert found[1].methods == METHODS  # no baseline was run


def test_jobs_of_one_target_keep_out_of_each_others_way(tmp_path: Path) -> None:
    """Finished jobs with more splits replace those with fewer; data sets are united; protocols stay separate."""
    names = ("embedded:a", "embedded:b", "embedded:c")
    store, job = toy_store(tmp_path / "s.sqlite", names, protocols=("paper",))

    def ask(splits: int, protocol: str, sizes: tuple[Size, ...]) -> None:
        options = RunOptions(splits=splits, protocols=(protocol,))
        store.begin_run({"jobs": [replace(job, options=options, sizes=sizes, holes=()).as_json()]}, {})

    def shown() -> list[tuple[int, tuple[str, ...] | None, int]]:
        return [(each.options.splits, each.options.protocols, len(each.sizes)) for each in stored_jobs(store)]

    with store:
        ask(2, "paper", job.sizes[:1])
        assert shown() == [(3, ("paper",), 3)], "the first job contains it"
        ask(3, "paper", job.sizes[1:2])
        assert shown() == [(3, ("paper",), 3)], "a later request had fewer data sets"
        ask(5, "paper", job.sizes)
        ask(2, "sound", job.sizes)
        assert shown() == [(3, ("paper",), 3), (5, ("paper",), 3), (2, ("sound",), 3)], "five splits have not been run"
        write_report(store, tmp_path / "out")
        folders = {path.parent.name for path in (tmp_path / "out").glob("*/*")}
    assert folders >= {"overview-3-splits-paper"}
    assert "overview" not in folders


def test_figure5_section_shows_every_level_there_is(tmp_path: Path) -> None:
    (job,) = prepare(["figure5"], RunOptions(splits=2, protocols=("sound",)), suite="embedded", only=["wdbc"])
    with Store(tmp_path / "s.sqlite", write=True) as store:
        store.begin_run({}, {})
        for cell in job.cells():
            if cell.level not in (0, 256, 800):
                continue
            rows = rows_of(list(product(LOSSES, METHODS)), test=20 if cell.contamination == "outliers" else 24)
            store.add(cell, Record(cell.key, "done", rows, (50, 25, 25), 30, 0.1))
        section = build(job, Archive(store))
    table = next(table for table in section.tables if "hinge" in table.title)
    rows = {row[0]: row[1] for row in table.rows}
    assert rows == {
        "0 outliers": "96.00", "256 outliers": "80.00", "0 imbalance": "96.00", "800 imbalance": "96.00",
        "0 ambiguity": "96.00", "800 ambiguity": "96.00",
    }  # fmt: skip
    assert any("12800 imbalance" in note and "have not been run" in note for note in section.notes)
    majority = {row[0]: row[-1] for row in table.rows}
    assert majority["800 imbalance"] == f"{100 * (357 + 800) / (569 + 800):.2f}"
    assert majority["800 ambiguity"] == f"{100 * (212 + 800) / (569 + 800):.2f}"
    assert majority["256 outliers"] == f"{100 * 357 / 569:.2f}"


def test_synthetic_sections_tell_what_is_true() -> None:
    """Close decay is within a few errors of the optimum; average is tens of errors off on the ambiguous set."""
    points, lines, table = synthetic.figure1_shown(200, draws=2)
    excess = {
        (row[0], method): float(cell) for row in table.rows for method, cell in zip(METHODS, row[1:-1], strict=True)
    }
    for name in ("easy", "imbalance", "outlier", "ambiguous"):
        assert excess[f"{name}, alpha 1e-05", "close_decay"] <= 4, name
    # The descent of the paper's picture ends before average has converged; its minimiser is near the best.
    for name, early in (("easy", 15), ("imbalance", 5)):
        assert excess[f"{name}, released descent", "average"] > early
        assert excess[f"{name}, released descent", "close"] < 3
        assert excess[f"{name}, alpha 1e-05", "average"] < 3
        assert excess[f"{name}, alpha 1", "average"] > 0
    assert excess["ambiguous, alpha 1e-05", "average"] > 15
    assert min(excess["ambiguous, alpha 1", "average"], excess["outlier, alpha 1", "average"]) > 0
    assert min(excess[f"ambiguous, alpha {alpha}", "atk"] for alpha in ("1e-05", "0.01", "1")) > 0
    assert len(points) == 500 + 500 + 501 + 500
    assert {(line["set"], line["way"], line["method"]) for line in lines} == {
        (p["set"], way, m) for p in points for way in (synthetic.DESCENT, synthetic.MINIMISERS) for m in METHODS
    }
    assert len(figures.boundaries(points, lines).to_dict()["vconcat"]) == 2
    examples = synthetic.examples_shown(300)
    one = {r["method"]: r for r in examples.records if r["example"] == "1"}
    assert one["average"]["errors"] == 2 * synthetic.EXAMPLE1_SIZE
    assert one["close"]["errors_from_right_side"] == one["close"]["best_possible"] == 2
    assert one["average"]["errors_from_right_side"] == 2 * synthetic.EXAMPLE1_SIZE  # convex: the start does not matter
    assert any("Close makes 50 errors" in note for note in examples.notes)
    two = {r["method"]: r for r in examples.records if r["example"] == "2"}
    assert two["close_decay"]["errors"] <= two["close_decay"]["best_possible"] + 40
    assert two["average"]["errors"] / two["average"]["n"] == pytest.approx(0.32, abs=0.01)


def test_charts_are_valid_vega_lite() -> None:
    scores = made()
    with charts.unchecked():  # as the report makes them
        drawn = (
            figures.scatter(scores), figures.chosen_k(scores), figures.gains(scores, "hinge"),
            figures.critical_difference(scores, "hinge"),
        )  # fmt: skip
    for chart in drawn:
        assert chart.to_dict() == charts.specification(chart)  # the first is checked against the schema
