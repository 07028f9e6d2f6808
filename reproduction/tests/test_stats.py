"""The statistics agree with worked examples and other implementations, and have the promised levels."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats as reference

from reproduction.protocol import stats
from reproduction.protocol.protocol import compare

#: AUC of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets: Table 6 of J. Demsar, "Statistical Comparisons of
#: Classifiers over Multiple Data Sets", JMLR 7 (2006). On `voting` the table ranks 0.975 and 0.975 as 2 and 3; a
#: fourth decimal gives that order here.
DEMSAR = np.array([
    [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.000, 0.940, 0.619, 0.972, 0.957],
    [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.000, 0.962, 0.666, 0.981, 0.978],
    [0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.000, 0.965, 0.614, 0.9751, 0.946],
    [0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.000, 0.962, 0.669, 0.975, 0.970],
]).T  # fmt: skip

pairs = arrays(float, (2, 25), elements=st.integers(0, 40).map(lambda count: count / 40))


def test_demsar_ranks_and_critical_difference() -> None:
    np.testing.assert_allclose(stats.average_ranks(DEMSAR), [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    assert stats.critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert stats.critical_difference(4, 14, level=0.10) == pytest.approx(1.12, abs=0.005)
    # Its conclusion at 0.10: C4.5 is worse than C4.5+m and C4.5+m+cf, the rest do not differ significantly.
    groups = stats.rank_groups(stats.average_ranks(DEMSAR), stats.critical_difference(4, 14, level=0.10))
    assert groups == [(3, 1, 2), (2, 0)]


def test_demsar_wilcoxon() -> None:
    """Demsar's first example: R+ = 93, R- = 12, so T = 12, below the critical value of 21 for 14 data sets."""
    p = stats.wilcoxon(DEMSAR[:, 1], DEMSAR[:, 0])
    # Normal approximation of his equation, with the variance's correction for the tied ranks 1.5 and 3.5.
    deviation = math.sqrt(14 * 15 * 29 / 24 - 2 * (2**3 - 2) / 48)
    assert p == pytest.approx(2 * reference.norm.sf((14 * 15 / 4 - 12) / deviation), rel=1e-3)
    assert p < 0.05
    assert stats.wilcoxon(DEMSAR[:, 0], DEMSAR[:, 1]) == p


def test_nemenyi_agrees_with_scikit_posthocs() -> None:
    posthocs = pytest.importorskip("scikit_posthocs", reason="install closecall[test]")
    p = posthocs.posthoc_nemenyi_friedman(-DEMSAR).to_numpy()
    ranks = stats.average_ranks(DEMSAR)
    for level in (0.05, 0.10):
        apart = np.abs(ranks[:, None] - ranks) >= stats.critical_difference(4, 14, level=level)
        np.testing.assert_array_equal(apart, p <= level)


@given(scores=pairs)
def test_paper_test_is_scipys(scores: np.ndarray) -> None:
    ours = float(stats.paper_test(scores[0], scores[1]))
    if np.ptp(scores[0]) == 0 and np.ptp(scores[1]) == 0:
        assert ours == 1
    else:
        assert ours == pytest.approx(reference.ttest_ind(*scores).pvalue, abs=1e-12)


@given(scores=pairs)
def test_corrected_test_is_the_paired_test_shrunk(scores: np.ndarray) -> None:
    """Without the correction it is the paired t-test; with it, t shrinks by sqrt((1/25 + 1/3) / (1/25))."""
    differences = scores[0] - scores[1]
    if np.ptp(differences) == 0:
        expected = float(differences[0] == 0)
        assert float(stats.corrected_test(scores[0], scores[1])) == expected
        return
    plain = reference.ttest_rel(*scores)
    assert float(stats.corrected_test(*scores, test_over_train=0)) == pytest.approx(plain.pvalue, abs=1e-12)
    t = plain.statistic / math.sqrt((1 / 25 + 1 / 3) * 25)
    assert float(stats.corrected_test(*scores)) == pytest.approx(2 * reference.t.sf(abs(t), 24), abs=1e-12)


def test_holm_agrees_with_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="comes with closecall[bench]")
    rng = np.random.default_rng(1)
    for size in (1, 2, 9, 94):
        p = rng.random(size) ** 3
        p[: size // 3] = p[0]  # ties
        np.testing.assert_allclose(stats.holm(p), multitest.multipletests(p, method="holm")[1])


def test_points_counts_exactly_two_points_and_joint_is_both() -> None:
    rng = np.random.default_rng(2)
    base = rng.integers(60, 80, size=(3, 25)) / 100
    other = base + np.array([0.02, 0.019, 0.3])[:, None]
    noisy = other.copy()
    noisy[2] = np.clip(base[2] + 0.3 * rng.standard_normal(25) + 0.03, 0, 1)
    table = compare(np.stack([base, noisy], axis=1), ("average", "close"), "sound")
    pair, back = table["average", "close"], table["close", "average"]
    assert pair.wins("points")[:2].tolist() == [True, False]
    np.testing.assert_array_equal(pair.wins("joint"), pair.wins("points") & pair.wins("significant"))
    assert not (pair.wins("significant") & back.wins("significant")).any()
    np.testing.assert_array_equal(pair.p, back.p)


def test_holm_is_applied_over_data_sets_in_sound_only() -> None:
    rng = np.random.default_rng(3)
    scores = rng.random((6, 2, 25))
    raw = stats.corrected_test(scores[:, 0], scores[:, 1])
    np.testing.assert_allclose(compare(scores, ("a", "b"), "sound")["a", "b"].p, stats.holm(raw))
    paper = compare(scores, ("a", "b"), "paper")["a", "b"].p
    np.testing.assert_allclose(paper, reference.ttest_ind(scores[:, 0], scores[:, 1], axis=1).pvalue)


def test_intervals() -> None:
    # Clopper & Pearson by the beta quantiles that define them.
    low, high = stats.fraction_interval(7, 20)
    assert low == pytest.approx(reference.beta.ppf(0.025, 7, 14))
    assert high == pytest.approx(reference.beta.ppf(0.975, 8, 13))
    assert stats.fraction_interval(0, 0) == (0.0, 1.0)


def test_a_means_interval_agrees_with_scipys() -> None:
    values = np.random.default_rng(5).exponential(size=93)
    mean, low, high = stats.mean_interval(values)
    peer = reference.bootstrap((values,), np.mean, method="percentile", n_resamples=9999).confidence_interval
    assert mean == values.mean()
    assert (low, high) == pytest.approx((peer.low, peer.high), abs=0.03)  # the mean's standard error is 0.1
    few = values[:20]
    assert stats.mean_interval(few)[1:] == pytest.approx(
        reference.t.interval(0.95, 19, few.mean(), few.std(ddof=1) / 20**0.5)
    )
    assert np.isnan(stats.mean_interval(np.zeros(0))[0])
    assert np.isnan(stats.mean_interval(np.ones(1))[1:]).all()
    assert stats.mean_interval(np.full(3, 2.0)) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("size", [2, 5, 9, 20, 30, 60])
def test_a_means_interval_covers_what_it_says(size: int) -> None:
    """For normal values, the coverage is within four standard errors of 95 %, plus one point for the bootstrap."""
    drawn = np.random.default_rng(size).normal(size=(1000, size))
    ends = np.array([stats.mean_interval(values)[1:] for values in drawn])
    covered = np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
    assert covered == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 1000) ** 0.5 + (size >= 30) * 0.01)


def test_bad_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="same splits"):
        stats.paper_test(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="two splits"):
        stats.corrected_test(np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="NaN"):
        stats.paper_test(np.array([0.5, np.nan]), np.zeros(2))
    with pytest.raises(ValueError, match=r"unknown criterion 'best'.*joint"):
        compare(np.zeros((1, 2, 3)), ("a", "b"), "paper")["a", "b"].wins("best")


def test_the_sound_test_keeps_its_level_and_the_papers_does_not() -> None:
    """Nearest class means on two blocks of features with the same distribution: every significant gain is an error.

    With 300 data sets a rate of 5 % has a standard error of 1.3 points, so 9 % is three of them away.
    """
    rng, scores = np.random.default_rng(7), np.empty((300, 2, 25))
    for found in scores:
        y = np.where(rng.random(100) < 0.5, 1.0, -1.0)
        X = rng.standard_normal((100, 2, 5))
        X[:, :, 0] += y[:, None] / 2
        for split in range(25):
            train, _, test = np.split(rng.permutation(100), [50, 75])
            ends = [X[train][y[train] == label].mean(axis=0) for label in (1, -1)]
            margins = y[test][:, None] * ((X[test] - (ends[0] + ends[1]) / 2) * (ends[0] - ends[1])).sum(axis=2)
            found[:, split] = (margins > 0).mean(axis=0)
    assert (stats.corrected_test(scores[:, 0], scores[:, 1]) < 0.05).mean() < 0.09
    assert (stats.paper_test(scores[:, 0], scores[:, 1]) < 0.05).mean() > 0.30
    assert (stats.corrected_test(scores[:, 0], scores[:, 1], test_over_train=0.0) < 0.05).mean() > 0.30
    suites = scores.reshape(30, 10, 2, 25)
    assert np.mean([(compare(each, ("a", "b"), "sound")["a", "b"].p < 0.05).any() for each in suites]) < 0.20
    assert np.mean([stats.wilcoxon(*each.mean(axis=-1).T) < 0.05 for each in suites]) < 0.20
