"""The page about the predictions of every test example: what is in the files, how to read them, where they differ."""

from __future__ import annotations

from pathlib import Path

from closecall.report.blocks import Block, Code, Heading, Items, Paragraph, Tabled
from closecall.report.formats import Column, Row, table_of
from reproduction.run.predictions import MOST_VALUES, read_index
from reproduction.run.scores import title

_READ = (
    "from reproduction.run.predictions import read_predictions",
    "",
    'frame = read_predictions("docs/results/predictions", "{suite}", "{protocol}")',
    'right = frame[["logistic.average", "logistic.close_decay"]].eq(frame["truth"], axis=0)',
    'print(right.groupby([frame["dataset"], frame["split"]], observed=True).mean())',
)


def predictions_page(folder: Path) -> list[Block]:
    """The page, from the index of the folder."""
    files = read_index(folder)["files"]
    records: list[Row] = [
        {
            "file": name, "sets": len(facts["datasets"]), "rows": facts["rows"],
            "bytes": (folder / name).stat().st_size,
            "differs": sum(len(each["differs"]) for each in facts["datasets"].values()), "sha256": facts["sha256"][:16],
        }
        for name, facts in files.items()
    ]  # fmt: skip
    columns: dict[str, Column] = {
        "file": "{file}", "sets": "{sets}", "test examples, all splits": "{rows}",
        "kB": lambda row: f"{row['bytes'] / 1000:.0f}", "counts that differ": "{differs}", "SHA-256 begins": "{sha256}",
    }  # fmt: skip
    left_out = [
        f"{name} leaves out what has more than {MOST_VALUES:,} values (rows x encoded columns): "
        f"{', '.join(map(title, facts['left_out']))}"
        for name, facts in files.items()
        if facts.get("left_out")
    ]
    blocks: list[Block] = [
        Heading("Predictions of every test example", 1),
        Paragraph(
            "For every test example: what the chosen average and close decay predict, for tests of your own.",
            strong=True,
        ),
        Paragraph(
            "A line of a file is a test example of a split: the data set, the "
            "split, the row of the data set, whether its class is +1, and whether each of the four chosen "
            "classifiers says so."
        ),
        Tabled(table_of("predictions", "Files in predictions/", columns, records)),
        Paragraph(
            "Cells keep counts, so the chosen settings were solved again for these files, each by itself; rounding "
            "then differs from that of the whole grid. Where the right predictions of a split are not as many as its "
            "cell has, it is listed below and in index.json. The reader refuses a file whose SHA-256 is not the "
            "index's."
        ),
        *([Items(tuple(left_out))] if left_out else []),
        Code(tuple(line.format_map(next(iter(files.values()))) if "{" in line else line for line in _READ)),
    ]
    differing = [
        f"{title(dataset)}, {facts['protocol']}, split {split}, {name}: {ours} right, {stored} in the cell"
        for facts in files.values()
        for dataset, each in facts["datasets"].items()
        for split, name, ours, stored in each["differs"]
    ]
    if differing:
        blocks += [Heading("Counts that differ"), Items(tuple(differing))]
    return blocks
