"""The compiled grid of networks: against autograd, against its NumPy twin, and without torch."""

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from closecall.aggregates import AGGREGATES, Aggregate
from closecall.losses import LOSSES, Loss
from closecall.network import NetworkProgress, compiled, train_grid
from closecall.network.layers import Parameters, Shape, TwinWalker, scores_of, start
from closecall.network.paths import Settings, path_of, prepare, spans
from closecall.objective import Problem

#: Counts for every aggregate, on at least 12 examples; tests of closecall.nn use them too.
COUNTS: dict[str, dict[str, Any]] = {
    "average": {},
    "maximal": {},
    "top": {"k": 4},
    "atk": {"k": 0.3},
    "close": {"k": 9},
    "close_decay": {"k": 9},
    "ranked_range": {"k": 12, "m": 3},
    "trimmed": {"m": 0.2},
}
needs_kernel = pytest.mark.skipif(compiled.LIBRARY is None, reason="the package was installed without a C compiler")


def blobs(samples: int = 40, classes: int = 2, features: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = np.arange(samples) % classes
    X = rng.normal(size=(samples, features)) + 1.2 * np.eye(features)[codes % features]
    return X, 2 * codes - 1 if classes == 2 else codes


@pytest.fixture(params=["numpy", "torch"])
def either(request: pytest.FixtureRequest) -> Any:
    """Return both implementations of the grid, which must have the same properties."""
    if request.param == "numpy":
        return train_grid
    pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')
    from closecall.nn import network

    return network.train_grid


def scaled(name: str, total: float) -> dict[str, Any]:
    """Return the counts of an aggregate as fractions, for any mass."""
    fractions = {"k": 0.4, "m": 0.15}
    return {each: fractions[each] for each in AGGREGATES[name].takes} if total < 20 else COUNTS[name]


def gradient(walkers: Any, data: Any, shape: Shape, weights: np.ndarray, problem: Problem) -> np.ndarray:
    """Return the gradient of the aggregate loss without its penalty, from one step of a walker."""
    walker = walkers(data, shape, Settings(1, 0.1, False))
    path = path_of(Problem(problem.loss, problem.aggregate, problem.k, 0.0, problem.m), data.total, convex=False)
    values = weights.astype(data.rows.dtype)
    walker.network(values, np.zeros_like(values), np.zeros_like(values), path)(range(1, 2))
    return np.asarray(walker.kept["gradient"] if walkers is compiled.CompiledWalker else walker.gradient, dtype=float)


def masses_of(style: str, samples: int, rng: np.random.Generator) -> np.ndarray | None:
    return {"ones": None, "halves": rng.integers(1, 5, samples) / 2, "general": rng.random(samples) + 0.01}[style]


@needs_kernel
@pytest.mark.parametrize("style", ["ones", "halves", "general"])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("aggregate", AGGREGATES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_gradients_are_the_twins(aggregate: str, loss: str, style: str, data: Any) -> None:
    """Multiples of a quarter are exact in float32: margins have the same ties in both implementations."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9999)))
    samples, features = data.draw(st.sampled_from([8, 33, 200, 700])), data.draw(st.integers(1, 24))
    hidden, classes = data.draw(st.integers(1, 24)), data.draw(st.sampled_from([None, None, 3]))
    X = rng.integers(-2, 3, (samples, features)).astype(float)
    y = np.arange(samples) % classes if classes else np.where(np.arange(samples) % 2, 1, -1)
    mass = masses_of(style, samples, rng)
    examples = [prepare(X, y, mass, classes, dtype) for dtype in (np.float32, np.float64)]
    shape = Shape(features, hidden, classes or 1)
    weights = rng.integers(-3, 4, shape.size) * rng.choice([0, 0.25, 0.5], shape.size)
    problem = Problem(loss, aggregate, **scaled(aggregate, examples[0].total))
    found, expected = (
        gradient(walkers, each, shape, weights, problem)
        for walkers, each in zip((compiled.CompiledWalker, TwinWalker), examples, strict=True)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 * max(1, np.abs(expected).max()))


@needs_kernel
@pytest.mark.parametrize("classes", [None, 5])
@settings(max_examples=25, deadline=None)
@given(samples=st.integers(5, 1200), features=st.integers(1, 40), hidden=st.integers(1, 40), seed=st.integers(0, 9999))
def test_wide_vectors_have_the_bits_of_narrow_ones(
    classes: int | None, samples: int, features: int, hidden: int, seed: int
) -> None:
    X, y = blobs(samples, classes or 2, features, seed)
    problems = [Problem("logistic", name, k=0.3 if "k" in AGGREGATES[name].takes else None) for name in COUNTS]
    held = ctypes.c_int32.in_dll(compiled.LIBRARY, "network_held")  # type: ignore[arg-type]
    found = []
    for width in (16, 8):
        held.value = width
        grid = train_grid(X, y, problems, max_iter=6, seed=seed, classes=classes, hidden=hidden)
        found.append(grid.parameters.values)
    held.value = 16
    np.testing.assert_array_equal(*found)


def by_autograd(X: np.ndarray, y: np.ndarray, problem: Problem, mass: np.ndarray, classes: int | None) -> np.ndarray:
    """Return the scores of a module trained by torch's Adam, with the core's weights held fixed in every step."""
    torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')
    from closecall.nn import ResidualMLP, logit_losses

    module = ResidualMLP.of(start(Shape(X.shape[1], 5, classes or 1), seed=3))
    optimizer, settings = torch.optim.Adam(module.parameters(), lr=1.0), Settings(24, 0.03, False)
    known, aggregate, k_at, m = problem.resolve(mass.sum(), settings.max_iter)
    shrunk = [layer.weight for layer in (module.first, module.second, module.output)]
    for step in range(1, settings.max_iter + 1):
        optimizer.param_groups[0]["lr"] = settings.rate(step)
        logits = module(torch.tensor(X))
        name = f"top_two_{problem.loss}" if classes else problem.loss
        losses = logit_losses(name, logits if classes else logits[:, 0], torch.tensor(y)).losses
        values = losses.detach().numpy()[None]
        weights = aggregate.weigh(values, mass, known.threshold, np.asarray(k_at(step)), np.asarray(m))[0]
        penalty = problem.alpha / 2 * sum(each.square().sum() for each in shrunk)
        optimizer.zero_grad()
        ((torch.tensor(weights) * losses).sum() + penalty).backward()
        optimizer.step()
    return np.asarray(module(torch.tensor(X)).detach().T)


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_grid_is_its_problems_trained_by_autograd(loss: str, classes: int | None) -> None:
    torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')
    from closecall import nn

    X, y = blobs(classes=classes or 2)
    X = X.astype(np.float32).astype(float)
    mass = np.random.default_rng(1).integers(1, 4, len(X)) / 2
    problems = [Problem(loss, name, alpha=alpha, **COUNTS[name]) for name in AGGREGATES for alpha in (0.01, 1.0)]
    expected = [by_autograd(X, y, each, mass, classes) for each in problems]
    run = {"max_iter": 24, "seed": 3, "hidden": 5, "sample_weight": mass, "classes": classes}
    grids = (
        (train_grid(X, y, problems, **run), 2e-4),
        (train_grid(X, y, problems, dtype=np.float64, **run), 1e-7),
        (nn.train_grid(X, y, problems, dtype=torch.float64, **run), 1e-7),
    )
    for grid, tolerance in grids:
        found = grid.scores(X).reshape(len(problems), classes or 1, -1)
        for problem, scores, right in zip(problems, found, expected, strict=True):
            np.testing.assert_allclose(scores, right, atol=tolerance, err_msg=str(problem))


def test_what_the_kernel_does_not_know_runs_on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mix a user's loss and aggregate with known ones, and give a known name to another function."""
    X, y = blobs()
    core = AGGREGATES["atk"]
    monkeypatch.setitem(AGGREGATES, "halves", Aggregate("halves", lambda losses, mass, *rest: 0 * losses + mass / 2))
    twice = Loss("twice", lambda m: 2 * LOSSES["hinge"].value(m), lambda m: 2 * LOSSES["hinge"].slope(m), 2, 4, True)
    monkeypatch.setitem(LOSSES, "twice", twice)
    problems = [Problem("hinge", "halves", alpha=9.0), Problem("twice", "halves", alpha=1.0), Problem("hinge")]
    halves, twos, plain = train_grid(X, y, problems, max_iter=20, dtype=np.float64).scores(X)
    np.testing.assert_allclose(twos, plain, atol=1e-9)  # twice the loss, half the weight
    assert not np.allclose(halves, plain)
    known = train_grid(X, y, [Problem("hinge", "atk", k=5)], max_iter=20).scores(X)
    monkeypatch.setitem(AGGREGATES, "atk", Aggregate("atk", AGGREGATES["halves"].weigh, ("k",)))
    assert not np.allclose(train_grid(X, y, [Problem("hinge", "atk", k=5)], max_iter=20).scores(X), known)
    monkeypatch.setitem(AGGREGATES, "mine", Aggregate("mine", core.weigh, ("k",), decays=True))
    with_decay = train_grid(X, y, [Problem("hinge", "mine", k=5)], max_iter=21).scores(X)
    assert np.isfinite(with_decay).all()


def test_copies_are_weights_and_order_does_not_matter(either: Any) -> None:
    X, y = blobs(30)
    mass = np.random.default_rng(0).integers(0, 4, 30)
    copies = np.random.default_rng(1).permutation(np.repeat(np.arange(30), mass))
    problems = [Problem("logistic", name, alpha=0.1, **COUNTS[name]) for name in AGGREGATES]
    weighted = either(X, y, problems, max_iter=60, sample_weight=mass)
    copied = either(X[copies], y[copies], problems, max_iter=60)
    assert np.array_equal(weighted.scores(X), copied.scores(X))


def test_a_problem_is_trained_alike_alone_and_in_a_grid(either: Any) -> None:
    X, y = blobs()
    problems = [Problem("hinge", "close_decay", k=k) for k in (5, 10, None)]
    problems += [Problem("hinge", "close", k=None), Problem("hinge", "atk", k=1.0), Problem("hinge", "close", k=5)]
    (first, early), (second, late) = spans(problems, 40.0, 30)
    assert (first, second) == (range(1, 11), range(11, 31))
    assert (len(set(early)), len(set(late))) == (2, 4)
    assert path_of(problems[5], 40.0, convex=True).aggregate == "close"
    problems.append(Problem("logistic", "close", k=5, alpha=3.0))
    grid = either(X, y, problems, max_iter=30)
    for problem, scores in zip(problems, grid.scores(X), strict=True):
        alone = either(X, y, [problem], max_iter=30).scores(X)[0]
        # Networks of one block of torch are multiplied together, which changes the last bits.
        np.testing.assert_allclose(alone, scores, atol=0 if either is train_grid else 1e-3, err_msg=str(problem))
    assert np.array_equal(grid.scores(X)[2], grid.scores(X)[3])
    assert grid.n_iter.tolist() == [30] * 7


def test_torchs_blocks_and_its_module_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')
    from closecall import nn

    X, y = blobs()
    problems = [Problem("logistic", "close", k=k, alpha=alpha) for k in (5, 9) for alpha in (0.1, 1.0, 10.0)]
    whole = nn.train_grid(X, y, problems, max_iter=20, dtype=torch.float64)
    monkeypatch.setattr("closecall.nn.network.CPU_BLOCK", 1)
    alone = nn.train_grid(X, y, problems, max_iter=20, dtype=torch.float64)
    np.testing.assert_allclose(whole.scores(X), alone.scores(X), atol=1e-9)
    for row, scores in enumerate(whole.scores(X)):
        module = nn.ResidualMLP.of(whole.parameters, row)
        np.testing.assert_allclose(module(torch.tensor(X))[:, 0].detach(), scores, atol=1e-9)


@pytest.mark.parametrize("aggregate", ["average", "close_decay"])
def test_early_stopping_keeps_the_best(aggregate: str, either: Any) -> None:
    X, y = blobs(200)
    held = blobs(100, seed=1)
    problems = [Problem("logistic", aggregate, k=0.2, alpha=alpha) for alpha in (1e-4, 1.0)]
    stopped = either(X, y, problems, max_iter=240, hidden=20, validation=held, patience=10)
    first = 160 if aggregate == "close_decay" else 1
    assert (stopped.n_iter < 240).all()
    assert (stopped.n_iter >= first + 10).all()
    full = either(X, y, problems, max_iter=240, hidden=20)
    kept, last = (((grid.scores(held[0]) > 0) == (held[1] > 0)).mean(axis=1) for grid in (stopped, full))
    assert (kept >= last - 0.02).all()


def test_progress_comes_in_percents(either: Any) -> None:
    X, y = blobs()
    for problems, steps in (([Problem(alpha=1.0), Problem(alpha=2.0)], 50), ([Problem()], 1000)):
        told: list[NetworkProgress] = []
        either(X, y, problems, max_iter=steps, callback=told.append)
        assert told[-1] == NetworkProgress(steps * len(problems), steps * len(problems))
        assert [each.done for each in told] == sorted({each.done for each in told})
        assert 2 <= len(told) <= 101


def test_a_penalised_intercept_shrinks(either: Any) -> None:
    X, y = blobs()
    largest = []
    for given_ in (False, True):
        found = either(X + 3, y, [Problem(alpha=1e3)], max_iter=300, penalize_intercept=given_).parameters
        largest.append(max(np.abs(each[0, :, found.shape.features]).max() for each in found.shape.split(found.values)))
    assert largest[0] > 0.01 > largest[1]


def test_bad_input_is_explained(either: Any) -> None:
    X, y = blobs()
    for change, message in (
        ({"problems": []}, "nothing to train"),
        ({"y": y + 1}, "labels must be -1"),
        ({"problems": [Problem("hinge", "close", k=41)]}, "k=41 exceeds the 40 examples"),
        ({"X": X * 1e300}, "too large for float32"),
        ({"X": np.where(X > 2, np.nan, X)}, "NaN"),
        ({"sample_weight": -np.ones(40)}, "negative"),
    ):
        with pytest.raises(ValueError, match=message):
            either(**{"X": X, "y": y, "problems": [Problem()], **change})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected \(samples, 3\)"):
        either(X, y, [Problem()], max_iter=1).scores(X[:, :2])


def test_scores_go_through_rows_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = blobs()
    parameters = start(Shape(3, 4, 2), seed=0)
    whole = scores_of(parameters, X)
    monkeypatch.setattr("closecall.network.layers.WIDE", 40)
    np.testing.assert_allclose(scores_of(Parameters(parameters.shape, parameters.values), X), whole, atol=1e-12)


def test_a_network_cell_needs_no_torch() -> None:
    """Compute the network half of a table without torch."""
    code = """
import sys
class NoTorch:
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "torch":
            raise ImportError("no torch")
sys.meta_path.insert(0, NoTorch())
from closecall.network import ResidualMLPClassifier
from reproduction.run.cell import run_cell
from reproduction.protocol.plan import Cell
from reproduction.protocol import load_dataset
cell = Cell("embedded", "embedded:monk3", load_dataset("embedded:monk3").checksum, 0, "network", "sound", 5)
record = run_cell(cell)
print(record.status, len(record.rows))
try:
    ResidualMLPClassifier(device="cuda").fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
except ValueError as error:
    print(error)
try:
    import closecall.nn
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("done 286\n")
    assert "needs PyTorch: import ResidualMLPClassifier from closecall.nn" in done.stdout
    assert 'closecall.nn needs PyTorch: pip install "closecall[torch]"' in done.stdout
