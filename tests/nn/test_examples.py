"""The PyTorch examples run and do what they claim."""

import contextlib
import io
import multiprocessing
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

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


def one_of_several(rank: int, name: str, out: str, *given: Any) -> None:
    """Run the example in one process and keep its output."""
    with Path(f"{out}.{rank}").open("w") as file, contextlib.redirect_stdout(file):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))["work"](rank, *given)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return the output of an example with two processes; PyTorch is imported once for both."""
    multiprocessing.set_forkserver_preload(["closecall.nn"])

    def run(name: str) -> str:
        def spawn(work: Any, args: tuple[Any, ...], nprocs: int) -> None:
            assert (work.__name__, nprocs) == ("work", 2)
            start = torch.multiprocessing.start_processes
            start(one_of_several, (name, str(tmp_path / "out"), *args), nprocs, start_method="forkserver")

        monkeypatch.setattr(torch.multiprocessing, "spawn", spawn)
        monkeypatch.setattr("sys.argv", [name, "--processes", "2"])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        assert (tmp_path / "out.1").read_text() == ""
        return (tmp_path / "out.0").read_text()

    return run


def test_segmentation_in_one_process_and_in_two(printed: Any) -> None:
    example = runpy.run_path(str(EXAMPLES / "torch_segmentation.py"))
    results = example["main"]()
    assert results["hard pixels by image"] > results["mean"] > 0
    assert printed("torch_segmentation") == show(example, results)


def test_detection_in_one_process_and_in_two(printed: Any) -> None:
    example = runpy.run_path(str(EXAMPLES / "torch_detection.py"))
    results = example["main"]()
    assert results["mined 3:1"][0] > results["mean"][0]
    assert printed("torch_detection") == show(example, results)


def show(example: dict[str, Any], results: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        example["show"](results)
    return out.getvalue()


def test_images() -> None:
    for overall, rarest in results_of("torch_images").values():
        assert overall > 0.9
        assert rarest > 0.7
