"""Schedules of counts against their formulas."""

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from closecall import nn  # noqa: E402

SHAPES: dict[str, Any] = {
    "linear": (lambda u: 1 - u, {"shape": "linear"}),
    "cosine": (lambda u: (1 + math.cos(math.pi * u)) / 2, {"shape": "cosine"}),
    "own": (lambda u: (1 - u) ** 3, {"shape": lambda u: (1 - u) ** 3}),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("warmup", "until"), [(0.0, 1.0), (0.25, 0.75), (0.5, 0.5)])
@pytest.mark.parametrize("count", ["k", "m"])
@pytest.mark.parametrize("start", [None, 40, 0.6])
def test_a_count_follows_its_formula(shape: str, warmup: float, until: float, count: str, start: Any) -> None:
    remains, options = SHAPES[shape]
    reducer = nn.AverageTopK(0.13) if count == "k" else nn.Trimmed(m=0.13)
    schedule = nn.CountSchedule(reducer, 20, count=count, start=start, warmup=warmup, until=until, **options)
    losses = torch.rand(77, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = {None: 77 if count == "k" else 0, 40: 40, 0.6: 0.6 * 77}[start]
    last = 0.13 * 77
    for step in range(1, 24):
        done = min(step, 20) / 20
        part = 1.0 if done <= warmup else remains((done - warmup) / (until - warmup)) if done < until else 0.0
        part = 0.0 if done >= until else part
        expected = last + (first - last) * part
        assert schedule.count_at(77) == pytest.approx(expected, abs=1e-6)
        taken = reducer.weights(losses).sum().item()
        assert taken == pytest.approx(expected if count == "k" else 77 - expected, abs=1e-6)
        schedule.step()


def test_steps_and_two_counts_at_once() -> None:
    reducer = nn.RankedRange(20, 10)
    k = nn.CountSchedule(reducer, 10, shape="steps", milestones=[0.3, 0.6], start=100)
    m = nn.CountSchedule(reducer, 10, count="m", until=0.5)
    losses = torch.rand(100, generator=torch.Generator().manual_seed(0))
    seen = []
    for _ in range(10):
        seen.append((k.count_at(100), m.count_at(100)))
        assert reducer.weights(losses).sum().item() == pytest.approx(seen[-1][0] - seen[-1][1])
        assert torch.compile(reducer, backend="eager")(losses).item() == pytest.approx(reducer(losses).item(), rel=1e-5)
        k.step()
        m.step()
    torch._dynamo.reset()
    assert [each[0] for each in seen] == [100.0] * 3 + [60.0] * 3 + [20.0] * 4
    assert [each[1] for each in seen] == [2.0, 4.0, 6.0, 8.0] + [10.0] * 6
    assert set(reducer.state_dict()) == {"k_step", "m_step"}
    assert "k_schedule='CountSchedule'" in repr(reducer)
