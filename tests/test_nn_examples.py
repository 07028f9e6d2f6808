"""The PyTorch examples run and do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

EXAMPLES = Path(__file__).parent.parent / "examples"


def results_of(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()


def test_plain_loop() -> None:
    results = results_of("torch_loop")
    assert results["close decay, k = 50 %"] > 0.98 > 0.9 > results["mean"]


def test_skorch() -> None:
    pytest.importorskip("skorch", reason="needs skorch: pip install skorch")
    assert min(results_of("torch_skorch").values()) > 0.85


def test_lightning_style() -> None:
    assert results_of("torch_lightning")["accuracy"] > 0.9


def test_lightning_style_module_resumes() -> None:
    module_class = runpy.run_path(str(EXAMPLES / "torch_lightning.py"))["CloseKModule"]
    first, second = (module_class(features=2, classes=3, total_steps=90) for _ in range(2))
    for _ in range(45):
        first.on_train_batch_end(None, None, 0)
    checkpoint: dict[str, Any] = {}
    first.on_save_checkpoint(checkpoint)
    second.on_load_checkpoint(checkpoint)
    assert second.schedule.k_at(100) == first.schedule.k_at(100) < 100


def test_images() -> None:
    for overall, rarest in results_of("torch_images").values():
        assert overall > 0.9
        assert rarest > 0.7
