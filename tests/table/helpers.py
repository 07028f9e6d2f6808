"""Run the command line in the process of the tests."""

import io
import json
import sys

import pytest

from closecall import cli


class Run:
    """Runs the command in this process and keeps what it wrote to ``out`` and ``err``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "80")
        self.out = self.err = ""

    def __call__(self, *arguments: object, stdin: bytes | None = None) -> int:
        self.monkeypatch.setattr(sys, "argv", ["closecall", *map(str, arguments)])
        if stdin is not None:
            self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        self.out, self.err = self.capsys.readouterr()
        return int(stopped.value.code)

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]
