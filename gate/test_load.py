"""The soak distinguishes growth of memory from noise."""

import numpy as np

from gate.soak import SLOPE, Load, slope_of


def test_the_slope_is_found_and_its_error_covers_noise() -> None:
    cells, rng = np.arange(0, 20000, 50), np.random.default_rng(0)
    slope, error = slope_of(cells, 5e4 + 0.2 * cells + rng.normal(0, 100, len(cells)))
    assert abs(slope - 200) < 4 * error < 40
    for place in (3000, 14000):  # one step is not a leak, many steps are
        slope, error = slope_of(cells, np.where(cells > place, 9e4, 5e4) + rng.normal(0, 10, len(cells)))
        assert abs(slope) < 4 * error + 1
    slope, error = slope_of(cells, 5e4 + 500 * (cells // 2500) + rng.normal(0, 10, len(cells)))
    assert slope > 3 * error + SLOPE


def test_a_leak_is_reported() -> None:
    good = {"cells": 20000, "stored": 20000, "slopes": {"driver": (3.0, 1.0)}, "grown": 0.0,
            "files": (9, 9), "processes": (1, 1)}  # fmt: skip
    assert [*Load(**good).wrong()] == []
    for change in ({"slopes": {"driver": (500.0, 10.0)}}, {"files": (9, 11)}, {"processes": (1, 2)},
                   {"stored": 19999}, {"grown": 6000.0}):  # fmt: skip
        assert len([*Load(**good | change).wrong()]) == 1
