"""The command line in this process, in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.table.helpers import Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    from tests.table.helpers import Run  # only where a test asks for it: it needs closecall[bench]

    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)
