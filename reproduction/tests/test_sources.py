"""Names, sources and suites, with files written here and downloads replaced by functions: no network is used."""

import gzip
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from closecall.table.read.dataset import DataError
from reproduction.protocol import SUITES, available, data_directory, load_dataset, remote, sources
from reproduction.protocol.catalogue import FAN8, OPENML100, PMLB94, PMLB_GONE, PMLB_OF_2017, pmlb_today
from reproduction.protocol.remote import NotAtHandError
from reproduction.run.scores import title
from reproduction.tests.test_files import SMALL, write

pd = pytest.importorskip("pandas", reason="install closecall[bench]")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("CLOSECALL_DATA", str(tmp_path))


def appendicitis(rows: int = 106, features: int = 7) -> bytes:
    """Return a table of the size of PMLB's appendicitis, with other numbers."""
    lines = ["\t".join([*(f"x{j}" for j in range(features)), "target"])]
    lines += ["\t".join([*(str((i * j) % 7) for j in range(features)), str(i % 2)]) for i in range(rows)]
    return ("\n".join(lines) + "\n").encode()


def leftovers(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() or path.name.startswith(".part-")]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("spambse", r"unknown data set 'spambse'; did you mean 'spambase'\?"),
        ("zzzzzz", r"unknown data set 'zzzzzz'\. Use an embedded set"),
        ("openml:credit-g", "takes a data set id"),
        ("openml100:4", "not one of the 54 binary tasks"),
        ("fan8:monk3", "unknown set of Fan et al"),
    ],
)
def test_unknown_names_get_advice(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        load_dataset(name)


def test_where_a_bare_name_is_looked_for() -> None:
    found = {name: sources.resolve(name)[0] for name in ("monk3", "spambase", "german-num", "madelon", "tic_tac_toe")}
    assert list(found.values()) == ["embedded", "pmlb", "fan8", "openml100", "pmlb"]
    assert sources.resolve("pmlb:tic_tac_toe") == ("pmlb", "tic-tac-toe")  # today's spelling is accepted


def test_data_directory_by_argument_environment_and_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data_directory("given") == Path("given")
    assert data_directory() == tmp_path
    monkeypatch.delenv("CLOSECALL_DATA")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_directory() == Path("/cache/closecall")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_directory() == Path.home() / ".cache" / "closecall"


def test_pmlb_reads_both_spellings_and_says_what_it_read(tmp_path: Path) -> None:
    write(tmp_path / "pmlb" / "appendicitis" / "appendicitis.tsv.gz", appendicitis())
    data = load_dataset("pmlb:appendicitis", download=False)
    assert (data.name, data.source, data.version) == ("appendicitis", "pmlb", "changed since 2017")
    rows, features, _ = PMLB94["postoperative-patient-data"]
    today = "postoperative_patient_data"
    write(tmp_path / "pmlb" / today / f"{today}.tsv.gz", appendicitis(rows, features))
    for name in (f"pmlb:{today}", "postoperative-patient-data"):
        assert load_dataset(name, download=False).name == "postoperative-patient-data"
    write(tmp_path / "pmlb" / "mine" / "mine.tsv.gz", appendicitis(9, 2))
    assert load_dataset("pmlb:mine", download=False).version == "unlisted"


def test_pmlb_download_is_kept_under_the_name_of_2017(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pmlb")
    asked: list[str] = []
    rows, features, _ = PMLB94["postoperative-patient-data"]
    packed = gzip.compress(appendicitis(rows, features))

    def get(url: str) -> bytes | None:
        asked.append(url)
        return packed if "_deprecated_" in url else None

    monkeypatch.setattr(remote, "http_get", get)
    data = load_dataset("pmlb:postoperative-patient-data")
    assert data.X.shape == (rows, features)
    assert [url.rsplit("/", 1)[1] for url in asked] == [
        "postoperative_patient_data.tsv.gz",
        "_deprecated_postoperative_patient_data.tsv.gz",
    ]
    kept = tmp_path / "pmlb" / "postoperative-patient-data" / "postoperative-patient-data.tsv.gz"
    assert leftovers(tmp_path) == [kept]
    assert kept.read_bytes() == packed
    load_dataset("pmlb:postoperative-patient-data")
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (gzip.compress(appendicitis())[:-30], "the download cannot be used.*truncated"),
        (b"<html>busy</html>", "the download cannot be used.*not a gzip"),
        (gzip.compress(appendicitis(features=6)), r"should have 106 rows x 7 features but this file has 106 x 6"),
        (gzip.compress(appendicitis().replace(b"target", b"tarjet")), "no target column"),
        (None, "PMLB has no set"),
    ],
)
def test_a_bad_download_leaves_nothing(
    answer: bytes | None, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pmlb")
    monkeypatch.setattr(remote, "http_get", lambda url: answer)
    with pytest.raises(DataError, match=match):
        load_dataset("pmlb:appendicitis")
    assert leftovers(tmp_path) == []


def test_offline_says_what_to_fetch_where_to_put_it_and_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pmlb")
    place = tmp_path / "pmlb" / "tic-tac-toe" / "tic-tac-toe.tsv.gz"
    with pytest.raises(NotAtHandError) as caught:
        load_dataset("pmlb:tic-tac-toe")
    message = str(caught.value)
    for part in ("no network in tests", "tic_tac_toe/tic_tac_toe.tsv.gz", str(place), "CLOSECALL_DATA", "'embedded'"):
        assert part in message
    monkeypatch.setattr(remote, "_from_openml", remote.urllib.request.urlopen)
    for name, download, match in [
        ("pmlb:tic-tac-toe", False, "downloading is off"),
        ("pmlb:bupa", False, "different target"),
        ("promoters", True, "duplicate of molecular-biology_promoters"),
        ("fan8:splice3175", True, r"LIBSVM.*splice3175.csv.gz"),
        ("openml100:43", True, r"no network in tests.*openml.org/d/44"),
        ("openml:44", False, "downloading is off"),
    ]:
        with pytest.raises(NotAtHandError, match=match):
            load_dataset(name, download=download)


def bunch() -> SimpleNamespace:
    frame = pd.DataFrame(
        {
            "age": [1.5, np.nan, 3.1, 4.0],
            "code": pd.Categorical(["10", "9", None, "9"]),
            "word": ["a,b", 'q"', "NA", "a,b"],
            "class": pd.Categorical(["no", "yes", "yes", "no"]),
        }
    )
    return SimpleNamespace(frame=frame, target_names=["class"], details={"name": "toy", "version": "2"})


def test_openml_is_fetched_once_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(remote, "_from_openml", lambda data_id: asked.append(data_id) or bunch())
    for _ in range(2):
        data = load_dataset("openml:77")
        assert (data.name, data.source, data.version) == ("toy", "openml", "77, version 2")
        assert data.categories == (None, ("9", "10"), ("NA", "a,b", 'q"'))
        np.testing.assert_array_equal(data.X[:, 1], [1, 0, np.nan, 0])
        np.testing.assert_array_equal(data.X[:, 0], [1.5, np.nan, 3.1, 4.0])
    assert asked == [77]
    for name, content, match in (
        ("data.csv.gz", SMALL, r"differs from the download.*delete it"),
        ("meta.json", "{", "is damaged"),
        ("meta.json", "[1]", "is damaged"),
    ):
        write(tmp_path / "openml" / "77" / name, content)
        with pytest.raises(DataError, match=match):
            load_dataset("openml:77")


def test_openml100_layout_with_types(tmp_path: Path) -> None:
    directory = tmp_path / "openml100"
    data_id, name = OPENML100[31]
    write(directory / f"31_{name}.csv.gz", "a,b,target\n1,NA,good\n2,y,bad\n1,,good\n")
    for spelling in ("openml100:31", f"openml100:{name}", f"openml:{data_id}"):
        data = load_dataset(spelling, download=False)
        assert (data.name, data.categories) == ("credit-g", (None, ("NA", "y")))  # only an empty cell is missing
    write(directory / "feature_types.csv", "task_id,feature,type\n31,a,nominal\n3,z,nominal\n")
    assert load_dataset("openml100:31").categories[0] == ("1", "2")
    assert load_dataset("openml100:31").X.shape == (3, 2)


def test_fan8_has_to_be_of_the_right_size(tmp_path: Path) -> None:
    write(tmp_path / "fan8" / "german-num.csv.gz", appendicitis(1000, 23).replace(b"\t", b","))
    with pytest.raises(DataError, match="should have 1000 rows x 24 features"):
        load_dataset("german-num")
    write(tmp_path / "fan8" / "german-num.csv.gz", appendicitis(1000, 24).replace(b"\t", b","))
    assert load_dataset("german-num").source == "fan8"


def test_http_get(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    monkeypatch.undo()  # this test uses a local server of its own
    monkeypatch.setenv("no_proxy", "*")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, promised, body = {"/whole": (200, 4, b"data")}.get(
                self.path, (int(self.path[1:]) if self.path[1:].isdigit() else 500, 0, b"")
            )
            self.send_response(code)
            self.send_header("Content-Length", str(promised))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            base = f"http://127.0.0.1:{server.server_port}"
            assert remote.http_get(f"{base}/whole") == b"data"
            assert remote.http_get(f"{base}/404") is None
            with pytest.raises(OSError):
                remote.http_get(f"{base}/503")
            monkeypatch.setattr(remote, "LIMIT", 3)
            with pytest.raises(DataError, match="more than the 3 bytes"):
                remote.http_get(f"{base}/whole")
        finally:
            server.shutdown()
            thread.join()


def test_sizes_of_the_suites() -> None:
    assert [len(members) for members in SUITES.values()] == [15, 9, 94, 54, 4, 2]
    assert len(FAN8) == 8
    for members in SUITES.values():
        assert len(set(members)) == len(members)
        assert all(sources.resolve(member)[0] == member.partition(":")[0] for member in members)
    assert len({data_id for data_id, _ in OPENML100.values()}) == 54


def test_what_is_there_is_found_in_both_spellings(tmp_path: Path) -> None:
    assert available("embedded", tmp_path) == list(SUITES["embedded"])
    assert not any(available(suite, tmp_path) for suite in ("fan8", "pmlb94", "openml100"))
    with pytest.raises(ValueError, match="unknown suite 'all'; choose one of: embedded, fan8"):
        available("all")
    for place in ("pmlb/heart_c/heart_c.tsv.gz", "pmlb/heart-h/heart-h.tsv.gz", "openml100/31_credit-g.csv.gz"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(gzip.compress(b"not read"))
    write(tmp_path / "openml" / "44" / "meta.json", "{}")
    found = {name for suite in SUITES if suite != "embedded" for name in available(suite, tmp_path)}
    assert found == {"pmlb:heart-c", "pmlb:heart-h", "openml100:31", "openml100:43"}


def test_todays_pmlb_has_the_others() -> None:
    """The installed package has every other set, with the size of 2017."""
    lists = pytest.importorskip("pmlb.dataset_lists", reason="install closecall[bench]")
    sizes = lists.df_summary.set_index("dataset")[["n_instances", "n_features"]].T.to_dict("list")
    here = {name for name, (rows, features, _) in PMLB94.items() if sizes.get(pmlb_today(name)) == [rows, features]}
    assert set(PMLB94) - here == set(PMLB_GONE)
    moved = [name for name in PMLB94 if name not in lists.classification_dataset_names]
    assert len(moved) == 26
    assert len(PMLB_OF_2017) == 94


@pytest.mark.shared_data
def test_pmlb94_is_the_edition_of_2017(shared_data: Path) -> None:
    for name in available("pmlb94", shared_data):
        data = load_dataset(name, shared_data, download=False)
        assert data.version == "2017", name
        assert set(np.unique(data.signs())) == {-1, 1}
        assert data.matrix_paper().shape == PMLB94[data.name][:2]


@pytest.mark.shared_data
def test_openml100_at_hand(shared_data: Path) -> None:
    names = available("openml100", shared_data)
    assert len(names) == 42
    for name in names:
        data = load_dataset(name, shared_data, download=False)
        assert data.name == title(name)
        assert np.isfinite(data.matrix_paper()).all()
        half = np.arange(len(data.y)) % 2 == 0
        assert all(np.isfinite(part).all() for part in data.encode(half, ~half))
