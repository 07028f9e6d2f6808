"""Settings and fixtures for all tests: the Hypothesis profile, the benchmark data and a browser."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Each parallel test process has one core, so a second thread of BLAS or OpenMP would only wait for the first. NumPy
# reads these variables once, when it is imported; tests of threads set their own.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import pytest
from hypothesis import Phase, settings

# Every run uses the same examples, so that a failure can be reproduced. Timings vary, so there is no deadline.
settings.register_profile("closecall", deadline=None, derandomize=True, max_examples=100, print_blob=True)
settings.register_profile("first_failure", settings.get_profile("closecall"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("closecall")
ROOT = Path(__file__).parent

# If a shell starts the tests in the background, they and all their child processes ignore Ctrl-C by default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    gc.disable()  # until all modules are imported


def pytest_collection_finish() -> None:
    """Exclude the million objects that are loaded now from garbage collection, because they are kept until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore helper modules: `--doctest-modules` would import them even if the packages that they need are missing."""
    helps = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if helps and {"tests", "gate"} & {*collection_path.relative_to(ROOT).parts} else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the benchmark data directory; tests that use it have the mark ``shared_data``."""
    given = os.environ.get("CLOSECALL_DATA")
    if not given or not (Path(given) / "pmlb").is_dir():
        pytest.skip("needs the benchmark data: set CLOSECALL_DATA to a directory that contains pmlb/")
    return Path(given)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium for one test file; the event loop of its driver keeps running and would disturb other tests."""
    from gate.browser import launched

    yield from launched()


@pytest.fixture(scope="module")
def wide(browser: Any, address: str) -> Any:
    """Open the page at the ``address`` fixture of the test file on a wide screen."""
    from gate.browser import visit

    return visit(browser, address)
