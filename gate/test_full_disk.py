"""Commands without room on the disk or with closed streams, with real limits; and the modes of the files they write."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from closecall import cli

TABLE = "a,b,target\n" + "".join(f"{i % 7},{i * i % 11},{'yn'[(i * i) % 3 == 1]}\n" for i in range(40))
#: Arguments of ``fit``, by the file that it cannot write.
MODELS = {"x.npz": ("logistic",), "x.skops": ("k_nn",), "x.onnx": ("logistic", "--onnx", "x.onnx")}


def run(*arguments: str, room: int | None = None, end: str = "", umask: int = -1) -> tuple[int, str]:
    """Return the exit code and last line of a command with redirection ``end``; files have at most ``room`` bytes."""
    limit = None if room is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    line = ["bash", "-c", f'"$@" {end}', "", sys.executable, "-W", "ignore", "-m", "closecall", *arguments]
    done = subprocess.run(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=limit, umask=umask, check=False
    )
    return done.returncode, " ".join(done.stderr.splitlines()[-1:])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TABLE)
    return tmp_path


@pytest.mark.parametrize("name", MODELS)
def test_no_part_of_a_model_is_left(name: str, folder: Path) -> None:
    model, *more = MODELS[name]
    out = "m" if more else name
    if more:  # there is room for the model, but not for its ONNX form
        os.symlink("/dev/full", "full")
        more[-1] = "full"
    Path(name).write_bytes(b"as it was")
    code, told = run("fit", "t.csv", "--out", out, "--model", model, "--splits", "0", *more, room=None if more else 900)
    assert code == cli.INCOMPLETE, told
    assert "free up space" in told
    assert Path(name).read_bytes() == b"as it was"
    assert not list(folder.glob(".*")), "nothing is left beside it"


def test_predictions_without_room() -> None:
    assert run("fit", "t.csv", "--out", "m", "--model", "logistic", "--splits", "0")[0] == 0
    for out in ("p.csv", "/dev/full"):
        code, told = run("predict", "m", "t.csv", "--out", out, room=200)
        assert (code, "free up space" in told) == (cli.INCOMPLETE, True), told
    assert not list(Path().glob("*p.csv*"))
    assert run("predict", "m", "t.csv", end=">/dev/full")[0] == cli.INCOMPLETE


def test_closed_streams_are_refused() -> None:
    """Predictions would be lost, but the exit code would report success."""
    assert run("fit", "t.csv", "--out", "m", "--model", "logistic", "--splits", "0")[0] == 0
    for arguments in (("predict", "m", "t.csv"), ("predict", "m", "t.csv", "--json"), ("datasets", "embedded")):
        code, told = run(*arguments, end=">&-")
        assert code == cli.BAD_REQUEST
        assert told == "closecall: standard output is closed; redirect it to a file or to /dev/null"
    code, told = run("compare", "-", end="<&-")
    assert code == cli.BAD_REQUEST
    assert told.startswith("closecall: standard input is closed")
    assert run("predict", "m", "t.csv", end="2>&-") == (0, "")


def test_all_files_have_the_mode_that_the_umask_gives() -> None:
    assert run("fit", "t.csv", "--out", "x.npz", "--model", "logistic", "--onnx", "x.onnx", umask=0o027)[0] == 0
    assert run("fit", "t.csv", "--out", "x.skops", "--model", "k_nn", "--splits", "0", umask=0o027)[0] == 0
    assert run("predict", "x.npz", "t.csv", "--out", "x.csv", umask=0o027)[0] == 0
    assert {path.name: path.stat().st_mode & 0o777 for path in Path().glob("x.*")} == dict.fromkeys(
        ("x.npz", "x.onnx", "x.skops", "x.csv"), 0o640
    )


@pytest.fixture
def tiny(request: pytest.FixtureRequest, folder: Path) -> Iterator[Path]:
    """Mount a file system with little room."""
    place = folder / "tiny"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("tiny", ["nr_inodes=1", "nr_inodes=5", "size=4k", "size=300k"], indirect=True)
def test_reproduce_without_room_is_incomplete(tiny: Path) -> None:
    """There is no room for a new file, for the store or for the report; no partial file is left."""
    if "size=4k" in Path("/proc/mounts").read_text().partition(str(tiny))[2].partition("\n")[0]:
        (tiny / "other").write_bytes(bytes(4096))
    code, told = run("reproduce", "overview", "--datasets", "monk3", "--splits", "1", "--max-iter", "20", "--workers",
                     "1", "--out", str(tiny / "r"))  # fmt: skip
    assert code == cli.INCOMPLETE, told
    assert "free up space" in told
    assert not list(tiny.rglob(".*.part"))


def test_reproduce_beyond_a_limit_of_the_size_of_files() -> None:
    """This needs no right to mount a file system."""
    code, told = run("reproduce", "overview", "--datasets", "monk3", "--splits", "1", "--workers", "1", room=0)
    assert code == cli.INCOMPLETE, told
    assert "free up space" in told
