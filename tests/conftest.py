"""Run the command line in this process, in a temporary folder."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    from tests.table.helpers import Run  # imported late: it needs closecall[bench]

    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)
