"""Published pages match the files: coverage, agreement with the paper, headline, pages, numbers in pages."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction.pages import agreement
from reproduction.pages.claims import claimed_pages, fill
from reproduction.pages.figure5 import simulation_gains, standard_error
from reproduction.pages.findings import headline, shortfalls
from reproduction.pages.publish import MARK, write_pages
from reproduction.protocol.plan import TARGETS, Cell, RunOptions
from reproduction.protocol.protocol import compare
from reproduction.protocol.published import PAIR_TABLES
from reproduction.protocol.stats import fraction_interval
from reproduction.run.campaign import _best, costs, coverage, jobs_of
from reproduction.run.compact import PLACES
from reproduction.run.exchange import export_store, read_folder
from reproduction.run.jobs import Job
from reproduction.run.record import Record
from reproduction.run.scores import Hole, Scores
from reproduction.run.store import Store
from reproduction.tests.helpers import job_of, level_records, made_scores, rows_of

PARTS = (50, 25, 25)
NAMES = ("pmlb:monk3", "pmlb:adult", "pmlb:flare")


def table1(names: Sequence[str] = NAMES, splits: int = 3) -> Job:
    holes = [Hole("pmlb:titanic", "not at hand: <b>save it as /else/pmlb/titanic")]
    return job_of(names, splits, target="table1", suite="pmlb94", holes=holes)


def record_of(cell: Cell) -> Record:
    """Return a record in which close decay has 5 of 25 more correct than the others; counts depend on the split."""
    rows = rows_of(PLACES, k=PARTS[0], alpha=1.0, train=40, validation=20, test=15 + cell.split % 2)
    rows["test"][rows["method"] == "close_decay"] += 5
    return Record(cell.key, "done", rows, PARTS, 4, 36.0)


def save(folder: Path, *runs: tuple[Job, list[Cell]]) -> Path:
    """Export a store with these runs to ``folder/cells``."""
    with Store(folder / "store" / "store.sqlite", write=True) as store:
        for job, cells in runs:
            arguments = ["reproduce", job.target.name, "--out", str(folder)]
            store.begin_run({"arguments": arguments, "jobs": [job.as_json()]}, {"python": "3.11", "cores": 2})
            for cell in cells:
                store.add(cell, record_of(cell))
        export_store(store, folder / "cells")
    return folder


def test_targets_share_cells_and_coverage_says_what_is_missing(tmp_path: Path) -> None:
    job = table1()
    part = table1(NAMES[1:2])  # a later run of one set must not hide the others
    left = [cell for cell in job.cells() if (cell.dataset, cell.split, cell.protocol) != ("pmlb:flare", 2, "sound")]
    campaign = read_folder(save(tmp_path, (job, left), (part, [])) / "cells")
    jobs = jobs_of(campaign)
    absent = {"overview", "table2", "table3", "table5", "figure5", "exact01", "sorr"}
    assert {each.target.name for each in jobs} == {*TARGETS} - absent
    (found,) = [each for each in jobs if each.target.name == "table4"]
    assert [size.name for size in found.sizes] == ["pmlb:adult", "pmlb:flare", "pmlb:monk3"]  # the suite's order
    assert [hole.dataset for hole in found.holes] == ["pmlb:titanic"]
    rows = {row["protocol"]: row for row in coverage(jobs, campaign) if row["suite"] == "pmlb94"}
    assert (rows["paper"]["cells_done"], rows["paper"]["sets_complete"], rows["paper"]["missing"]) == (9, 3, [])
    assert (rows["sound"]["cells_done"], rows["sound"]["missing"]) == (8, ["pmlb:flare"])
    assert rows["sound"]["sets"] == 94
    (paper, sound, everything) = costs(campaign)
    assert (paper["cells"], sound["cells"], everything["core_hours"]) == (9, 8, pytest.approx(0.17))


def test_what_one_model_left_out_for_its_size_is_no_missing_cell_of_that_model(tmp_path: Path) -> None:
    linear, network = table1(), table1(NAMES[:2])
    large = Hole(NAMES[2], "left out by request: rows x columns^2 is 2e+09, more than 1e+09")
    options = replace(network.options, models=("network",))
    network = replace(network, options=options, holes=(*network.holes, large))
    campaign = read_folder(save(tmp_path, (linear, linear.cells()), (network, network.cells()[:-1])) / "cells")
    jobs = {each.models[0]: each for each in jobs_of(campaign) if each.target.name == "table1"}
    assert len(jobs["linear"].sizes) == 3
    assert [hole.because for hole in jobs["network"].holes if hole.dataset == NAMES[2]] == [large.because]
    rows = {row["model"]: row for row in coverage(list(jobs.values()), campaign) if row["protocol"] == "sound"}
    assert (rows["linear"]["cells"], rows["network"]["cells"]) == (9, 6)
    assert NAMES[2] not in rows["network"]["missing"]


def test_the_way_of_running_with_the_most_cells_counts(tmp_path: Path) -> None:
    full, trial = table1(), table1(splits=5)
    trial = replace(trial, options=replace(trial.options, max_iter=10))
    campaign = read_folder(save(tmp_path, (full, full.cells()), (trial, trial.cells()[:4])) / "cells")
    (job,) = [each for each in jobs_of(campaign) if each.target.name == "table1"]
    assert (job.options.splits, job.options.max_iter) == (3, 1000)
    ways = {RunOptions(5): 38, RunOptions(25): 34, RunOptions(50): 20}
    assert _best(ways) == RunOptions(25), "a few sets that are not run yet do not hide more splits of the others"


def made(names: tuple[str, ...], gain: float = 0.0) -> Scores:
    return made_scores(names, gain, protocol="paper")


def test_agreement_of_fractions_is_a_test_of_two_proportions() -> None:
    rows = agreement.pair_agreement(made(tuple(f"set{i}" for i in range(94)), 0.2), PAIR_TABLES["table1"])
    assert len(rows) == 40
    (win,) = [r for r in rows if r["cell"] == "close decay over average" and r["loss"] == "hinge"]
    assert (win["ours"], win["published"]) == (1.0, 0.25)
    assert win["p_holm"] < 1e-10
    (none,) = [r for r in rows if r["cell"] == "average over close decay" and r["loss"] == "hinge"]
    assert (none["ours"], none["published"]) == (0.0, 0.0)
    assert none["p"] > 0.9
    assert all(r["p_holm"] >= r["p"] for r in rows)
    (record,) = agreement.agreement_summary(rows).records
    assert record["agree"] == sum(r["p"] >= 0.05 for r in rows) < 40 == record["cells"]
    table = agreement.disagreement_table(rows, "table1", "paper")
    assert len(table.rows) == 40 - record["agree"]


def test_agreement_of_errors_is_measured_in_standard_errors() -> None:
    scores = made(("pmlb:monk3", "pmlb:adult"))
    rows = agreement.error_agreement(scores)
    assert len(rows) == 10  # adult is not in Table 3
    row = next(r for r in rows if r["cell"] == "monk3, average" and r["loss"] == "logistic")
    splits = 100 * (1 - scores.test("logistic", ("average",))[0, 0])
    assert row["ours"] == pytest.approx(splits.mean())
    assert row["z"] == pytest.approx((splits.mean() - 19.86) / (np.sqrt(2) * splits.std(ddof=1) / 5))
    assert row["low"] < row["ours"] < row["high"]


def test_the_headline_counts_by_both_tests_and_opens_with_a_shortfall() -> None:
    names = tuple(f"set{i}" for i in range(10))
    rows = headline("pmlb94", made(names, 0.01))
    assert len(rows) == 2 * 2 * 3 * 2  # losses, tests, criteria, outcomes
    for row in rows:
        pair = compare(made(names, 0.01).test(row["loss"], ("average", "close_decay")), ("a", "b"), row["test"])
        order = ("a", "b") if row["outcome"] == "wins" else ("b", "a")
        assert row["count"] == pair[order].wins(row["criterion"]).sum()
        assert (row["low"], row["high"]) == fraction_interval(row["count"], 10)
    assert any(row["published"] == 0.27 for row in rows)
    short = shortfalls(headline("pmlb94", made(names, 0.0)))
    assert len(short) >= 2
    assert "0 of 10 (0%, 0%-31%)" in short[0]
    assert shortfalls(headline("pmlb94", made(names, 0.2))) == []
    assert shortfalls(headline("openml100", made(names, -0.2))) == []
    assert any("worse" in line for line in shortfalls(headline("pmlb94", made(names, -0.2))))


def test_gains_in_figure_5_have_the_error_of_paired_differences() -> None:
    records = [{**row, "gain": row["level"] - 100.0} for row in level_records((0, 64, 256), gain_error=0.25)]
    table = simulation_gains("figure5", records)
    assert table.rows[0] == ("close, logistic, outliers", "256", "+156.0 ±0.2", "1 of 2")
    assert [row[0] for row in table.rows[2:]] == ["close, hinge, outliers", "close decay, hinge, outliers"]
    assert np.isnan(standard_error(np.array([1.0])))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publish three PMLB sets, one of them incomplete under sound, with a hand-written page."""
    pytest.importorskip("altair", reason='pictures need: pip install "closecall[plots]"')
    folder = tmp_path_factory.mktemp("site")
    job = table1()
    save(folder, (job, [cell for cell in job.cells() if (cell.dataset, cell.protocol) != ("pmlb:flare", "sound")]))
    (folder / "reading.md").write_text("# Why we differ\n\nBy hand.\n")
    (folder / "table9.md").write_text(f"# Gone\n\n{MARK}\n")
    list(write_pages(folder, ("table1", "table4", "figure3")))
    return folder


def test_pages_say_how_they_came_about_and_what_is_missing(site: Path) -> None:
    assert {path.name for path in site.glob("*.md")} == {
        "index.md", "comparison.md", "table1.md", "table4.md", "figure3.md", "reading.md",
    }  # fmt: skip
    for path in site.glob("*.md"):
        generated = "Generated by `closecall publish`" in path.read_text()[-200:]
        assert generated == (path.name != "reading.md")
    page = (site / "table1.md").read_text()
    assert '??? note "Incomplete data sets (1): pmlb94, sound, linear"\n\n    flare.' in page
    assert "Not available locally: titanic." in page
    assert re.search(r"pmlb94, sound, linear *\| *2 of 94 \| *6 of 9 ", page)
    index = (site / "index.md").read_text()
    assert "3 of 18 planned cells have not been run yet" in " ".join(index.split())
    assert index.index("(reading.md)") < index.index("(table1.md)")
    assert "closecall reproduce table1\n" in index  # without --out
    assert "/else" not in index
    assert "<b>" not in index
    assert "3 of 3 (100%" in index


def test_the_same_files_make_the_same_pages(site: Path, tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    for path in (site / "cells").iterdir():
        (tmp_path / "cells" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "reading.md").write_bytes((site / "reading.md").read_bytes())
    for path in write_pages(tmp_path, ("table1", "table4", "figure3")):
        assert path.read_bytes() == (site / path.relative_to(tmp_path)).read_bytes(), path.name


CLAIM = """[["page.md"]]
text = "better on {} of the sets, worse on {}"
from = "headline.csv suite=pmlb94 protocol=paper test=paper loss=hinge criterion=joint"
cells = ["fraction .0% outcome=wins", "count d outcome=losses"]
"""


def test_numbers_in_pages_come_from_the_files(site: Path) -> None:
    page, claims = site.parent / "page.md", site.parent / "claims.toml"
    text = "Better, better on 12% of the\nsets, worse on 7.\n"
    assert "better on 12% of the\nsets, worse on 7." in fill(page, site, text)  # nothing is claimed yet
    claims.write_text(CLAIM)
    assert claimed_pages(site) == [page]
    filled = fill(page, site, text)
    assert "Better, better on 100% of the\nsets, worse on 0." in filled
    assert fill(page, site, filled) == filled
    for wrong in ("better on 12% of other sets, worse on 7.", 2 * text):
        with pytest.raises(ValueError, match="must contain text that occurs once on the page"):
            fill(page, site, wrong)
    for old, new in (("loss=hinge", "loss=none"), (" outcome=wins", ""), ("cells = [", "cells = ['a b', ")):
        claims.write_text(CLAIM.replace(old, new))
        with pytest.raises(ValueError, match=r"one is needed|one cell for every"):
            fill(page, site, text)
    claims.unlink()
