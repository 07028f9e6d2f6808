"""The command line in this process, in a folder of its own."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    from tests.table.helpers import Run  # only where a test asks for it: it needs closecall[bench]

    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)
