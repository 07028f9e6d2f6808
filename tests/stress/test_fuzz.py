"""Some of the fuzzing and some calls under the sanitizers with every check; and both see what they are there for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="install closecall[bench]")
pytest.importorskip("pyarrow", reason="install closecall[bench]")
pytest.importorskip("altair", reason="install closecall[bench,plots]")

from closecall._budget import PEAK
from tests.stress import fuzz, sanitize
from tests.stress.fuzz_targets import TARGETS, Target

#: Inputs of each kind with every check; the files of the corpus are the first.
COUNTS = {"csv": 25, "store": 25, "arguments": 11, "header": 60, "model": 80}
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="children are watched by means of Linux")


@linux
@pytest.mark.parametrize("kind", TARGETS)
def test_a_little_fuzzing(kind: str) -> None:
    tally, count = fuzz.Tally(), COUNTS.get(kind, 150)
    while tally.next < count:
        fuzz.run_batch(kind, TARGETS[kind], tally, count - tally.next)
    assert tally.findings == []
    assert tally.counts["ok"] >= len(fuzz.corpus(kind))
    assert sum(tally.counts.values()) == count
    assert tally.peak < PEAK


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


@linux
@pytest.mark.parametrize(
    ("read", "words"),
    [(_crash, "ended with -11"), (_hang, "no end after"), (_swell, "memory"), (_undocumented, "KeyError"),
     (_silent, "says nothing")],
)  # fmt: skip
def test_what_is_wrong_is_found(read: Callable[[bytes], None], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    tally = fuzz.Tally(next=1)

    def third(data: bytes) -> None:
        if data == fuzz.made("record", 3, fuzz.corpus("record")):
            read(data)

    target = Target(third, (ValueError,), 1, dict)
    while tally.next < 6:
        fuzz.run_batch("record", target, tally, 6 - tally.next)
    assert len(tally.findings) == 1
    assert tally.findings[0].startswith("record 3: ")
    assert words in tally.findings[0]
    assert sum(tally.counts.values()) == 5


@pytest.mark.skipif(not sanitize.runtime(), reason="the C compiler has no address sanitizer")
def test_the_kernels_under_the_sanitizers(tmp_path: Path) -> None:
    """No report from random calls, solves and networks; one from an overflow that is planted."""
    place = sanitize.build(tmp_path)
    done = sanitize.run(place, 200, 24, 2, 0, 1)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("without a report") == 3
    planted = sanitize.run(place, "planted")
    assert planted.returncode != 0
    assert "heap-buffer-overflow" in planted.stderr
