"""The paper's network for a grid of problems, against the plain module trained one at a time by autograd."""

import numpy as np
import pytest

from closecall.aggregates import AGGREGATES
from closecall.network.paths import Settings, path_of, spans
from closecall.objective import Problem

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')


from closecall.nn import ResidualMLP, train_grid  # noqa: E402
from tests.network.test_network import COUNTS, blobs, by_autograd  # noqa: E402


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_grid_is_its_problems_trained_one_at_a_time(loss: str, classes: int | None) -> None:
    X, y = blobs(classes=classes or 2)
    mass = np.random.default_rng(1).integers(1, 4, len(X)) / 2
    problems = [Problem(loss, name, alpha=alpha, **COUNTS[name]) for name in AGGREGATES for alpha in (0.01, 1.0)]
    grid = train_grid(
        X, y, problems, max_iter=24, seed=3, hidden=5, sample_weight=mass, classes=classes, dtype=torch.float64
    )
    found = grid.scores(X).reshape(len(problems), classes or 1, -1)
    for problem, scores in zip(problems, found, strict=True):
        expected = by_autograd(X, y, problem, 3, mass, 5, Settings(24, 0.03, False), classes)
        np.testing.assert_allclose(scores, expected, atol=1e-7, err_msg=str(problem))


def test_shared_paths_are_walked_once() -> None:
    problems = [Problem("hinge", "close_decay", k=k) for k in (5, 10, None)]
    problems += [Problem("hinge", "close", k=None), Problem("hinge", "atk", k=1.0), Problem("hinge", "close", k=5)]
    (first, early), (second, late) = spans(problems, 40.0, 30)
    assert (first, second) == (range(1, 11), range(11, 31))
    assert len(set(early)) == 2
    assert len(set(late)) == 4
    assert path_of(problems[5], 40.0, convex=True).aggregate == "close"
    X, y = blobs()
    together = train_grid(X, y, problems, max_iter=30).scores(X)
    assert np.array_equal(together[2], together[3])
    for problem, scores in zip(problems, together, strict=True):
        np.testing.assert_allclose(train_grid(X, y, [problem], max_iter=30).scores(X)[0], scores, atol=1e-3)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs()
    problems = [Problem("logistic", "close", k=k, alpha=alpha) for k in (5, 9) for alpha in (0.1, 1.0, 10.0)]
    whole = train_grid(X, y, problems, max_iter=20, dtype=torch.float64).scores(X)
    monkeypatch.setattr("closecall.nn.network.CPU_BLOCK", 1)
    alone = train_grid(X, y, problems, max_iter=20, dtype=torch.float64).scores(X)
    np.testing.assert_allclose(whole, alone, atol=1e-9)


def test_the_module_of_a_trained_network_scores_the_same() -> None:
    X, y = blobs()
    grid = train_grid(X, y, [Problem(), Problem("hinge", "close", k=0.5)], max_iter=20)
    for row in range(2):
        module = ResidualMLP.of(grid.parameters, row).double()
        np.testing.assert_allclose(module(torch.tensor(X))[:, 0].detach(), grid.scores(X)[row], atol=1e-6)
