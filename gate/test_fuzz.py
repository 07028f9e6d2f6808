"""A few inputs of the fuzzer and a few calls under the sanitizers; both must also find planted faults."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from closecall._budget import PEAK
from gate import fuzz, sanitize
from gate.fuzz_targets import TARGETS

#: Inputs of each kind; the files of the corpus come first.
COUNTS = {"csv": 15, "arguments": 11, "model": 200}
ROOT = Path(__file__).parents[1]
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the fuzzer reads /proc")


def run(kind: str, target: fuzz.Target, count: int, first: int = 0) -> fuzz.Tally:
    tally = fuzz.Tally(first)
    while tally.next < first + count:
        fuzz.run_batch(kind, target, tally, first + count - tally.next)
    assert sum(tally.counts.values()) == count, kind
    return tally


def fuzz_a_little() -> None:
    for kind, target in TARGETS.items():
        tally = run(kind, target, COUNTS.get(kind, 60))
        assert tally.findings == [], kind
        assert tally.counts["ok"] >= len(fuzz.corpus(kind)), kind
        assert tally.peak < PEAK, kind


def _fail(error: Exception) -> None:
    raise error


def _hang() -> None:
    while True:
        pass


#: The words of a finding, and a fault of a reader that leads to it.
PLANTED: dict[str, Callable[[], object]] = {
    "ended with -11": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "no end after": _hang,
    "memory": lambda: bytes(2 * fuzz.ROOM),
    "KeyError": lambda: _fail(KeyError("what is this")),
    "says nothing": lambda: _fail(ValueError()),
}


def find_planted_faults() -> None:
    """Use readers that fail at the third input."""
    fuzz.SECONDS = 1
    bad = TARGETS["record"].made("record", 3)
    for words, fault in PLANTED.items():

        def read(data: bytes, fault: Callable[[], object] = fault) -> None:
            if data == bad:
                fault()

        (finding,) = run("record", fuzz.Target(read, (ValueError,), 1), 5, first=1).findings
        assert finding.startswith("record 3: "), finding
        assert words in finding


@linux
@pytest.mark.parametrize("check", [fuzz_a_little, find_planted_faults])
def test_fuzzing(check: Callable[[], None]) -> None:
    """Use a process without threads: a child that is forked while another thread holds a lock would wait forever."""
    code = f"from gate.test_fuzz import {check.__name__}; {check.__name__}()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=900, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(not sanitize.runtime(), reason="the C compiler has no address sanitizer")
def test_the_kernels_under_the_sanitizers(tmp_path: Path) -> None:
    """Random calls, solves, networks and paths lead to no report, and a planted overflow leads to one."""
    place = sanitize.build(tmp_path)
    done = sanitize.run(place, 2, 0, 1)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("without a report") == 4
    planted = sanitize.run(place, "planted")
    assert planted.returncode != 0
    assert "heap-buffer-overflow" in planted.stderr
