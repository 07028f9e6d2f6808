"""The torture set through the PyTorch losses and the paper's network."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="install closecall[torch]")

from closecall.nn import ResidualMLPClassifier  # noqa: E402
from closecall.nn.functional import weights  # noqa: E402


@pytest.mark.parametrize(("name", "seeds"), [("torch losses", 150), ("network", 25)])
def test_nothing_breaks(name: str, seeds: int) -> None:
    from gate.torture_network import ATTACKS, Refused

    solved = 0
    for seed in range(seeds):
        try:
            ATTACKS[name](seed)
            solved += 1
        except Refused:
            pass
    assert solved >= seeds // 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e9, 1e25])
def test_the_unit_of_top_is_not_rounded_away(dtype: torch.dtype, size: float) -> None:
    losses = torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
    found = weights("top", losses, k=0.5, mass=torch.full((3,), size, dtype=dtype))
    assert found.tolist() == pytest.approx([0, 1, 0])


def test_weights_beyond_the_type_are_refused() -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2
    for size in (5e-324, 1e300):
        with pytest.raises(ValueError, match="rescale the weights"):
            ResidualMLPClassifier(hidden=2, max_iter=3).fit(X, y, np.full(8, size))


def test_scores_that_overflow_are_refused() -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2
    model = ResidualMLPClassifier(hidden=2, max_iter=3, random_state=0).fit(X, y)
    model.network_.parameters.values[:] *= 100
    with pytest.raises(ValueError, match="scale the features"):
        model.predict(np.full((1, 2), 1.7e308))
