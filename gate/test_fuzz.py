"""Some of the fuzzing and some calls under the sanitizers with every check; and both see what they are there for."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="install closecall[bench]")
pytest.importorskip("pyarrow", reason="install closecall[bench]")
pytest.importorskip("altair", reason="install closecall[bench,plots]")

from closecall._budget import PEAK
from gate import fuzz, sanitize
from gate.fuzz_targets import TARGETS, Target

#: Inputs of each kind with every check; the files of the corpus are the first.
COUNTS = {"csv": 12, "arguments": 11, "header": 60, "model": 80}
ROOT = Path(__file__).parents[1]
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="children are watched by means of Linux")


def fuzz_a_little() -> None:
    """Some inputs of each kind; every file of the corpus is read."""
    for kind, target in TARGETS.items():
        tally, count = fuzz.Tally(), COUNTS.get(kind, 60)
        while tally.next < count:
            fuzz.run_batch(kind, target, tally, count - tally.next)
        assert tally.findings == [], kind
        assert tally.counts["ok"] >= len(fuzz.corpus(kind)), kind
        assert sum(tally.counts.values()) == count, kind
        assert tally.peak < PEAK, kind


def _crash(data: bytes) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(data: bytes) -> None:
    end = time.process_time() + 30
    while time.process_time() < end:
        pass


def _swell(data: bytes) -> None:
    bytes(2 * fuzz.ROOM)


def _undocumented(data: bytes) -> None:
    raise KeyError("what is this")


def _silent(data: bytes) -> None:
    raise ValueError


PLANTED = {
    _crash: "ended with -11", _hang: "no end after", _swell: "memory", _undocumented: "KeyError",
    _silent: "says nothing",
}  # fmt: skip


def find_what_is_wrong() -> None:
    """Readers that go wrong at the third input, each in its own way."""
    fuzz.SECONDS = 1
    files = fuzz.corpus("record")
    bad = fuzz.made("record", 3, files)
    for read, words in PLANTED.items():
        target = Target(lambda data, read=read: read(data) if data == bad else None, (ValueError,), 1, dict)
        tally = fuzz.Tally(next=1)
        while tally.next < 6:
            fuzz.run_batch("record", target, tally, 6 - tally.next)
        assert len(tally.findings) == 1, words
        assert tally.findings[0].startswith("record 3: "), tally.findings
        assert words in tally.findings[0], tally.findings
        assert sum(tally.counts.values()) == 5


@linux
@pytest.mark.parametrize("check", [fuzz_a_little, find_what_is_wrong])
def test_fuzzing(check: Callable[[], None]) -> None:
    """In a process without threads: a child that is forked while another thread holds a lock waits for ever."""
    code = f"from gate.test_fuzz import {check.__name__}; {check.__name__}()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=900, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(not sanitize.runtime(), reason="the C compiler has no address sanitizer")
def test_the_kernels_under_the_sanitizers(tmp_path: Path) -> None:
    """No report from random calls, solves, networks and paths; one from an overflow that is planted."""
    place = sanitize.build(tmp_path)
    done = sanitize.run(place, 100, 12, 2, 12, 0, 1)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("without a report") == 4
    planted = sanitize.run(place, "planted")
    assert planted.returncode != 0
    assert "heap-buffer-overflow" in planted.stderr
