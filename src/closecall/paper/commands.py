"""The commands ``export``, ``import`` and ``publish``: arguments -> calls; what was done -> a line or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from closecall.report.text import shown

from .exchange import export_store, import_folder
from .store import Store

Folder = Annotated[Path, typer.Option("--out", help="Folder of the result store.")]
Json = Annotated[bool, typer.Option("--json", help="What was done as a line of JSON on standard output.")]
RESULTS = Path("closecall-results")


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("export")(export)
    app.command("import")(import_)
    app.command("publish")(publish)


def export(
    to: Annotated[Path, typer.Option(help="Folder to write to; files there of cells that the store has are replaced.")],
    output: Folder = RESULTS,
    as_json: Json = False,
) -> None:
    """Write the finished cells of a store compactly, as CSV: what validation chose, not the whole grid."""
    with Store(output / "store.sqlite") as store:
        paths = export_store(store, to)
        cells = len(store.done())
    size = sum(path.stat().st_size for path in paths)
    if as_json:
        print(json.dumps({"kind": "exported", "cells": cells, "files": list(map(str, paths)), "bytes": size}))
    else:
        print(f"{cells} cells in {len(paths)} files, {size / 1000:.0f} kB, in {shown(to)}")


def import_(
    folder: Annotated[Path, typer.Argument(help="A folder that `closecall export` or `publish` wrote.")],
    output: Folder = RESULTS,
    as_json: Json = False,
) -> None:
    """Put exported cells into a store as finished, so that they are not run again; all or none."""
    with Store(output / "store.sqlite", write=True) as store:
        done = import_folder(folder, store)
    if as_json:
        print(json.dumps({"kind": "imported", "added": done.added, "known": done.known}))
    else:
        print(f"{done.added} cells added, {done.known} were there already, in {shown(output)}")


def publish(
    to: Annotated[Path, typer.Option(help="Folder of the pages, such as docs/results.")],
    output: Annotated[Path | None, typer.Option("--out", help="Folder of a result store to export first.")] = None,
    readme: Annotated[list[Path] | None, typer.Option(help="Page whose results are filled in; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Write the pages, tables and figures of the results, from a store or from what was exported before."""
    try:
        from .publish import CELLS, write_pages
    except ImportError as error:
        raise ValueError(f'the pages need more packages ({error}): pip install "closecall[bench,plots]"') from None
    from .headline import fill

    if output is not None:
        with Store(output / "store.sqlite") as store:
            export_store(store, to / CELLS)
    tell = (lambda name: None) if as_json else (lambda name: print(f"making {shown(name)}", flush=True))
    paths = list(write_pages(to, tell=tell))
    for page in readme or ():
        page.write_text(fill(page.read_text(encoding="utf-8"), to), encoding="utf-8")
    size = sum(path.stat().st_size for path in to.rglob("*") if path.name.endswith((".csv", ".csv.gz")))
    if as_json:
        print(json.dumps({"kind": "published", "files": list(map(str, paths)), "csv_bytes": size}))
    else:
        print(f"{len(paths)} files in {shown(to)}; all CSV together {size / 1e6:.2f} MB")
