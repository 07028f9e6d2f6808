"""What all tests share: hypothesis profile, the benchmark data directory, a browser."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Tests that run side by side have a core each: a second thread of BLAS or OpenMP would only wait for the first.
# Before NumPy is imported, which reads it once; what is tested about threads sets its own.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import pytest
from hypothesis import Phase, settings

# Derandomised: the same examples every run, so that a red run is red for everyone. No deadline: machines are noisy.
settings.register_profile("closecall", deadline=None, derandomize=True, max_examples=100, print_blob=True)
settings.register_profile("first_failure", settings.get_profile("closecall"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("closecall")
ROOT = Path(__file__).parent

# A shell that starts the tests in the background lets them ignore Ctrl-C, and every process they start with them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    gc.disable()  # until everything is imported


def pytest_collection_finish() -> None:
    """What is loaded now stays to the end: the collector need not look at its million objects after every test."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Collect tests alone: `--doctest-modules` would import every helper, also those whose packages are missing."""
    helps = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if helps and {"tests", "gate"} & {*collection_path.relative_to(ROOT).parts} else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The benchmark data directory; tests that use it carry the mark ``shared_data``."""
    given = os.environ.get("CLOSECALL_DATA")
    if not given or not (Path(given) / "pmlb").is_dir():
        pytest.skip("needs the benchmark data: set CLOSECALL_DATA to a directory that contains pmlb/")
    return Path(given)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for one file only: its driver leaves a running event loop, which others may not have."""
    from gate.browser import launched

    yield from launched()


@pytest.fixture(scope="module")
def wide(browser: Any, address: str) -> Any:
    """The page at the ``address`` of the file that asks, on a wide screen."""
    from gate.browser import visit

    return visit(browser, address)
