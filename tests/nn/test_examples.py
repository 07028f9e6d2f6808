"""The PyTorch examples run and do what they say."""

from __future__ import annotations

import contextlib
import io
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

EXAMPLES = ROOT / "examples"


def results_of(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()


def test_plain_loop() -> None:
    results = results_of("torch_loop")
    assert results["close decay, k = 50 %"] > 0.98 > 0.9 > results["mean"]


def test_skorch() -> None:
    pytest.importorskip("skorch", reason="needs skorch: pip install skorch")
    assert min(results_of("torch_skorch").values()) > 0.85


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason='needs Lightning: pip install "closecall[integrations]"')
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    main = runpy.run_path(str(EXAMPLES / "torch_lightning.py"))["main"]
    results = main(default_root_dir=tmp_path, **quiet)
    assert results["accuracy"] > 0.9
    assert results["steps"] == 10 * 1000 / (25 * 2)  # steps of the optimiser, not of the loader


def printed(name: str, processes: int) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--processes", str(processes)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_segmentation_in_one_process_and_in_two() -> None:
    example = runpy.run_path(str(EXAMPLES / "torch_segmentation.py"))
    results = example["main"]()
    assert results["hard pixels by image"] > results["mean"] > 0
    assert printed("torch_segmentation", 2) == show(example, results)


def test_detection_in_one_process_and_in_two() -> None:
    example = runpy.run_path(str(EXAMPLES / "torch_detection.py"))
    results = example["main"]()
    assert results["mined 3:1"][0] > results["mean"][0]
    assert printed("torch_detection", 2) == show(example, results)


def show(example: dict[str, Any], results: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        example["show"](results)
    return out.getvalue()


def test_images() -> None:
    for overall, rarest in results_of("torch_images").values():
        assert overall > 0.9
        assert rarest > 0.7
