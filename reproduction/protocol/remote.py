"""Downloads from PMLB and OpenML into the data directory; each file is checked before it is moved into place."""

import gzip
import hashlib
import http.client
import json
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

from closecall._budget import LIMIT
from closecall.table.read.dataset import DataError

from .catalogue import PMLB94, PMLB_GONE, pmlb_today
from .dataset import Dataset
from .files import from_frame, read_bounded, read_table, write_whole

#: A download fails after this many seconds without a response.
TIMEOUT = 60


class NotAtHandError(DataError):
    """A data set that is not available locally; the message states what to fetch and where to put it."""


def not_at_hand(what: str, why: str, fetch: str, place: Path) -> NotAtHandError:
    """Return the error for a missing file: what to fetch, where to put it, and what works without it."""
    return NotAtHandError(
        f"{what} is not available locally: {why}. Fetch {fetch} and save it as {place} (to use another data "
        "directory, set CLOSECALL_DATA). The suite 'embedded' needs no download."
    )


def http_get(url: str) -> bytes | None:
    """Return the content at a URL, or None if there is none (404); raise ``OSError`` if it cannot be reached."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            return read_bounded(answer, url, LIMIT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise
    except http.client.HTTPException as error:
        raise OSError(f"the server's response is invalid ({error!r})") from error


def fetch_pmlb(name: str, place: Path) -> None:
    """Download a PMLB set to ``place``, by its name of 2017 or, if it had none then, by its current name."""
    what = f"PMLB's {name!r}"
    if name in PMLB_GONE:
        history = f"{name}.tsv.gz from the history of the PMLB repository before August 2020"
        raise not_at_hand(what, f"{PMLB_GONE[name]}, so today's PMLB cannot replace it", history, place)
    try:
        from pmlb.pmlb import GITHUB_URL, suffix
    except ImportError as error:
        raise DataError("downloading from PMLB needs the pmlb package: pip install 'closecall[bench]'") from error
    today = pmlb_today(name) if name in PMLB94 else name
    urls = [f"{GITHUB_URL}/{each}/{each}{suffix}" for each in (today, f"_deprecated_{today}")]
    try:
        raw = next((found for found in map(http_get, urls) if found is not None), None)
    except OSError as error:
        raise not_at_hand(what, f"the download failed ({error})", urls[0], place) from error
    if raw is None:
        raise NotAtHandError(f"PMLB has no set {name!r}; https://epistasislab.github.io/pmlb lists all names")
    try:
        read_pmlb(name, place, raw)
    except DataError as error:
        raise not_at_hand(what, f"the download cannot be used ({error})", urls[0], place) from error
    write_whole(place, raw)


def read_pmlb(name: str, path: Path, packed: bytes | None = None) -> Dataset:
    """Read a PMLB file and check its size; the version of the result states whether it is the 2017 edition."""
    frame = read_table(path, "target", packed=packed)
    data = from_frame(frame, "target", name=name, source="pmlb", version="unlisted")
    if name not in PMLB94:
        return data
    expected, found = PMLB94[name][:2], data.X.shape
    if found != expected:
        why = f"; {PMLB_GONE[name]}" if name in PMLB_GONE else ""
        raise DataError(
            f"PMLB's {name!r} should have {expected[0]} rows x {expected[1]} features but this file has "
            f"{found[0]} x {found[1]}{why}. Replace it with the right file, or load this one by its path"
        )
    return replace(data, version="2017" if data.checksum.startswith(PMLB94[name][2]) else "changed since 2017")


def fetch_openml(data_id: int, place: Path) -> None:
    """Download an OpenML data set with scikit-learn, which checks OpenML's MD5, and save it in the folder ``place``.

    ``meta.json`` is written last; without this file, the set counts as missing.
    """
    address = f"https://www.openml.org/d/{data_id}"
    try:
        bunch = _from_openml(data_id)
    except (OSError, ValueError) as error:
        recipe = f"{address} on a machine with internet access (closecall does this when it loads 'openml:{data_id}')"
        raise not_at_hand(f"OpenML data set {data_id}", f"the download failed ({error})", recipe, place) from error
    if len(bunch.target_names or ()) != 1:
        raise DataError(f"OpenML data set {data_id} has {len(bunch.target_names or ())} targets; exactly one is needed")
    frame = bunch.frame
    numeric = frame.select_dtypes("number").columns
    packed = gzip.compress(frame.to_csv(index=False).encode())
    meta = {
        "name": str(bunch.details["name"]),
        "version": str(bunch.details["version"]),
        "target": bunch.target_names[0],
        "nominal": [name for name in frame.columns if name not in numeric and name != bunch.target_names[0]],
        "sha256": hashlib.sha256(packed).hexdigest(),
    }
    write_whole(place / "data.csv.gz", packed)
    write_whole(place / "meta.json", json.dumps(meta))


def _from_openml(data_id: int) -> Any:
    from sklearn.datasets import fetch_openml as fetch

    return fetch(data_id=data_id, as_frame=True, parser="auto", cache=False)
