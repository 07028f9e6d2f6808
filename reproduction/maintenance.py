"""The commands ``export``, ``import`` and ``publish``: they report what they did as text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from closecall.cli.console import RESULTS, Json, Out, say
from closecall.report.text import shown, write_whole
from reproduction.run.exchange import export_store, import_folder
from reproduction.run.store import Store


def export(
    to: Annotated[Path, typer.Option(help="Folder to write to; existing files for cells in the store are replaced.")],
    output: Out = RESULTS,
    as_json: Json = False,
) -> None:
    """Write the finished cells of a store as compact CSV: the chosen rows, not the whole grid."""
    with Store(output / "store.sqlite") as store:
        paths = export_store(store, to)
        cells = len(store.done())
    size = sum(path.stat().st_size for path in paths)
    if as_json:
        say({"kind": "exported", "cells": cells, "files": list(map(str, paths)), "bytes": size})
    else:
        print(f"{cells} cells in {len(paths)} files, {size / 1000:.0f} kB, in {shown(to)}")


def import_(
    folder: Annotated[Path, typer.Argument(help="A folder written by `closecall export` or `publish`.")],
    output: Out = RESULTS,
    as_json: Json = False,
) -> None:
    """Add exported cells to a store, so they are not run again; all of them or none."""
    with Store(output / "store.sqlite", write=True) as store:
        done = import_folder(folder, store)
    if as_json:
        say({"kind": "imported", "added": done.added, "known": done.known})
    else:
        print(f"{done.added} cells added, {done.known} were already there, in {shown(output)}")


def publish(
    to: Annotated[Path, typer.Option(help="Folder of the pages, such as docs/results.")],
    output: Annotated[Path | None, typer.Option("--out", help="Folder of a result store to export first.")] = None,
    readme: Annotated[list[Path] | None, typer.Option(help="Page whose table to fill in; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Write the pages, tables and figures of the results, from a store or an earlier export."""
    try:
        from reproduction.pages.publish import CELLS, write_pages
    except ImportError as error:
        raise ValueError(f'the pages need more packages ({error}): pip install "closecall[bench,plots]"') from None
    from reproduction.pages.claims import claimed_pages, fill

    if output is not None:
        with Store(output / "store.sqlite") as store:
            export_store(store, to / CELLS)
    tell = (lambda name: None) if as_json else (lambda name: print(f"making {shown(name)}", flush=True))
    paths = list(write_pages(to, tell=tell))
    for page in [*claimed_pages(to), *(readme or ())]:
        write_whole(page, fill(page, to))
    size = sum(path.stat().st_size for path in to.rglob("*") if path.name.endswith((".csv", ".csv.gz")))
    if as_json:
        say({"kind": "published", "files": list(map(str, paths)), "csv_bytes": size})
    else:
        print(f"{len(paths)} files in {shown(to)}; all CSV together {size / 1e6:.2f} MB")
