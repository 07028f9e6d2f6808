"""The panel: which rows select challengers for which parts, and critical values by brute force and on noise."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from closecall import panel as panel_module
from closecall.paired import Gain, Units, apart, paired
from closecall.panel import GUARDS, blocks_of, panel_of


def preferred(gains: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> dict[int, float]:
    """Return the weights of the best three candidates on some rows, computed in plain loops."""
    values = [(weights * row)[rows] for row in gains]
    scores = [value.sum() / np.sqrt((value**2).sum()) if value.any() else 0.0 for value in values]
    best = sorted(range(len(gains)), key=lambda place: -round(scores[place], 9))[:3]
    shares = {place: np.exp(3 * (scores[place] - scores[best[0]])) for place in best}
    shares = {place: share for place, share in shares.items() if share >= 0.05}
    return {place: share / sum(shares.values()) for place, share in shares.items()}


@given(st.integers(0, 10_000), st.integers(2, 7))
@settings(max_examples=40)
def test_the_shares_are_those_of_plain_loops(seed: int, candidates: int) -> None:
    rng = np.random.default_rng(seed)
    panel = panel_of(np.array_split(rng.permutation(40), 4), apart(40), rng.lognormal(size=40))
    gains = rng.choice([-1.0, 0.0, 0.5, 1.0], (candidates, 40))
    found = panel.shares(gains)
    for part in range(4):
        wanted = np.zeros(candidates)
        for place, share in preferred(gains, panel.weights, panel.part != part).items():
            wanted[place] = share
        np.testing.assert_allclose(found[part], wanted, atol=1e-7)


@given(st.integers(0, 10_000), st.sampled_from(["rows", "time", "crossed"]))
@settings(max_examples=60)
def test_no_row_has_a_say_in_what_it_judges(seed: int, kind: str) -> None:
    rng, samples = np.random.default_rng(seed), 100
    user, item = np.divmod(np.arange(samples), 10)
    units = {"rows": apart(samples), "time": Units(np.arange(samples), time=True), "crossed": Units(user, other=item)}[
        kind
    ]
    tests = [np.flatnonzero(user % 5 == fold) if kind == "crossed" else np.arange(20) + 20 * fold for fold in range(5)]
    panel, gains = panel_of(tests, units, np.ones(samples)), rng.choice([-1.0, 0.0, 1.0], (4, samples))
    before = panel.shares(gains)
    row = int(rng.integers(samples))
    near = {
        "rows": np.arange(samples) // 20 == row // 20,
        "time": np.abs(np.arange(samples) // 20 - row // 20) <= 1,
        "crossed": (user == user[row]) | (item == item[row]),
    }[kind]
    other = np.where(near, rng.choice([-1.0, 0.0, 1.0], gains.shape), gains)
    part = panel.part[row]
    np.testing.assert_allclose(panel.shares(other)[part], before[part], atol=1e-9)
    assert not panel.may[part][np.unique(panel.part[near])].any()
    assert panel.may[part].any()


def test_a_part_for_which_nobody_may_choose_does_not_judge() -> None:
    panel = panel_of([np.arange(10), np.arange(10, 20)], Units(np.arange(20), time=True), np.ones(20))
    gains = np.random.default_rng(0).normal(size=(3, 20))
    assert not panel.shares(gains).any()
    assert (panel.shares(gains[:1]) == 1).all()  # there is only one candidate


def test_blocks_keep_units_whole() -> None:
    rng = np.random.default_rng(4)
    groups = Units(rng.integers(0, 12, 90), "groups")
    folds = [np.flatnonzero(np.arange(90) % 3 == fold) for fold in range(3)]  # they split every group
    block = blocks_of(folds, groups)
    assert all(len(np.unique(block[groups.codes == code])) == 1 for code in range(12))
    assert len(np.unique(block)) == 5
    np.testing.assert_array_equal(blocks_of(folds, apart(90)), np.arange(90) % 3)
    time = Units(np.arange(20), "blocks of time", time=True)
    assert (np.diff(blocks_of([np.arange(10, 20)], time)[10:]) >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_chance_is_that_of_all_flips_in_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(8), 3)
    weights, gains = rng.lognormal(size=24), rng.normal(size=(5, 24))
    tests = [np.flatnonzero(codes % 4 == fold) for fold in range(4)]
    panel = panel_of(tests, Units(codes, "groups"), weights)
    sums = np.array([[(weights * row)[codes == code].sum() for code in range(8)] for row in gains])
    ratios = []
    for signs in product([1.0, -1.0], repeat=8):
        flipped, value = sums * signs, np.zeros(8)
        for fold in range(4):
            for place, share in preferred(flipped, np.ones(8), np.arange(8) % 4 != fold).items():
                value[fold::4] += share * flipped[place, fold::4]
        ratios.append(value.sum() / np.sqrt((value**2).sum()))
    around_zero = np.clip(np.quantile(ratios, stats.norm.cdf(GUARDS)), 0, np.sqrt(0.999 * 8))
    np.testing.assert_allclose(panel.chance(gains), around_zero * np.sqrt(7 / (8 - around_zero**2)), rtol=1e-6)


def test_chance_of_many_rows_is_that_of_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    gains = rng.choice([-1.0, 0.0, 1.0], (6, 3000))
    panel = panel_of(np.array_split(np.arange(3000), 5), apart(3000), np.ones(3000))
    few = panel.chance(gains)
    monkeypatch.setattr(panel_module, "UNITS", 10_000)
    np.testing.assert_allclose(few, panel.chance(gains), atol=0.35)
    heavier = replace(panel, weights=np.full(3000, 20.0)).chance(gains)
    np.testing.assert_allclose(heavier, panel.chance(gains))
    assert panel.chance(gains[:1]) == ()
    assert panel.chance(np.zeros((3, 3000))) == (0.0,) * len(GUARDS)


@pytest.mark.parametrize(("candidates", "samples"), [(3, 60), (20, 120)])
def test_the_level_is_kept_where_a_plain_error_is_not_enough(candidates: int, samples: int) -> None:
    rng, runs, found = np.random.default_rng(candidates), 400, list[Gain]()
    for _ in range(runs):
        right = rng.integers(0, 2, (candidates + 1, samples)).astype(float)
        panel = panel_of(np.array_split(np.arange(samples), 5), apart(samples), np.ones(samples))
        gains = right[1:] - right[0]
        blend = (panel.shares(gains)[panel.part] * gains.T).sum(axis=1)
        found.append(replace(paired(blend, panel.weights), chance=panel.chance(gains)))
    for guard in (1.28, 2.0):
        taken = sum(gain.mean > gain.needed(guard) for gain in found)
        assert taken <= stats.binom.isf(1e-3, runs, stats.norm.sf(guard))
    assert sum(gain.mean > replace(gain, chance=()).needed(1.28) for gain in found) > stats.norm.sf(1.28) * runs
    assert stats.ttest_1samp([gain.mean for gain in found], 0).pvalue > 1e-3
