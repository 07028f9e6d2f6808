"""Selections as paths: starts, choice of ends, samples and certificates, checked by functions defined here."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse

from closecall import CloseKClassifier
from closecall.losses import LOSSES, get_loss
from closecall.objective import Problem
from closecall.solvers import engine as module
from closecall.solvers.certificate import Judged, lower_bounds
from closecall.solvers.cuts import CLOSE, LossCut, cut_of
from closecall.solvers.engine import Engine, ranked, serves
from closecall.solvers.narrow import judge_spot, narrow
from closecall.solvers.path import outlyingness, start_masses
from closecall.solvers.stages import Spot, Walk
from tests.solvers.test_path import table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def closed(X, y, mass=None, **options):
    masses = np.ones((1, len(y))) if mass is None else np.atleast_2d(mass)
    return Engine(X, y, masses, np.arange(len(y), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15), **options)


def one(close, loss="logistic", k=0.2, alpha=1.0, tol=None):
    return close.solve([Problem(loss, "close", k, alpha)], np.zeros(1, dtype=int), tol)


def test_most_smooth_tables_are_certified():
    """An engine that never certifies would pass every other test."""
    found = []
    for seed in range(8):
        X, y, _ = table(seed, 80)
        found += [one(closed(X, y, n_starts=2), loss, 0.3, tol=1e-4).gap[0] for loss in ("logistic", "squared_hinge")]
    assert (np.array(found) <= 1e-4).mean() >= 0.3  # ends with fewer errors come before those of narrow ramps
    assert ((np.array(found) >= 0) & (np.array(found) != 1)).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), free=st.booleans(), ramp=st.sampled_from([1.5, 0.1, 1e-3]))
def test_held_values_and_gaps_are_their_definitions(seed, free, ramp):
    """The gap of weights is the objective minus the bound of the tangents, relative to the objective."""
    X, y, rng = table(seed, 40)
    mass, c, cut = rng.exponential(size=40), 0.5 * rng.standard_normal(4), 0.4
    rows = closed(X, y, mass, penalize_intercept=not free).rows(slice(None))
    walk = Walk(rows.margins("logistic", mass), 2.0 * rows.penalized)
    mean, gap = judge_spot(walk, Spot(c, cut), LossCut(CLOSE, 9.0, 9.0, False), ramp)
    coef, intercept = rows.to_parameters(c)
    margins = y * (X @ coef + intercept)
    losses = np.logaddexp(0, -margins)
    weights = mass * np.clip((cut + ramp * cut / 2 - np.abs(losses - np.log(2))) / (ramp * cut), 0, 1)
    value = weights @ losses + coef @ coef + (0.0 if free else intercept**2)
    assert mean == pytest.approx(value / weights.sum())
    tangents = margins[None], -1 / (1 + np.exp(margins))[None]
    judged = Judged(X, y, "free" if free else "penalized")
    bound = lower_bounds(judged, get_loss("logistic"), weights[None], *tangents, np.array([2.0]))
    assert gap == pytest.approx(np.clip(1 - bound[0] / value, 0, 1), abs=1e-9)


@pytest.mark.parametrize(("name", "k", "m"), [("atk", 0.3, None), ("maximal", None, None), ("trimmed", None, 0.1),
                                              ("ranked_range", 0.6, 0.1)])  # fmt: skip
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_other_selections_are_certified_too(name, k, m, loss):
    found = []
    for seed in range(6):
        X, y, _ = table(seed, 60, levels=seed % 2)
        ends = closed(X, y, n_starts=2).solve([Problem(loss, name, k, 1.0, m)], np.zeros(1, dtype=int), 1e-3)
        found.append(ends.gap[0] <= 1e-3)
    assert all(found)


def test_starts_belong_to_rows_and_their_numbers():
    rng = np.random.default_rng(0)
    words, X, mass = (
        rng.integers(0, 1 << 63, 4000).astype(np.uint64),
        rng.normal(size=(4000, 3)),
        rng.exponential(size=4000),
    )
    found = start_masses(X, mass, words, 6)
    assert (found[0] == mass).all()
    assert (start_masses(X[::-1], mass[::-1], words[::-1], 6) == found[:, ::-1]).all()
    assert (start_masses(X, mass, words, 3) == found[:3]).all()
    factors = found[2:] / mass
    np.testing.assert_allclose(factors.mean(axis=1), 1, atol=0.15)
    assert np.abs(np.corrcoef(factors)[np.triu_indices(4, 1)]).max() < 0.1
    kept = found[1] > 0.5 * mass
    assert 0.74 < kept.mean() < 0.76
    assert outlyingness(X)[kept].max() <= outlyingness(X)[~kept].min()
    X[3000:] *= 50  # rows without mass do not matter
    whole = start_masses(X, np.where(np.arange(4000) < 3000, mass, 0.0), words, 4)
    np.testing.assert_array_equal(whole[:, :3000], start_masses(X[:3000], mass[:3000], words[:3000], 4))


def test_outliers_that_turn_the_average_do_not_turn_the_fit():
    """A ninth of the rows are outliers with the wrong label: the average points the wrong way, and so does its path."""
    x = np.concatenate([np.linspace(-2, 0, 100), np.linspace(0, 2, 100), np.linspace(-40, -20, 25)])[:, None]
    y = np.repeat([-1.0, 1.0, 1.0], [100, 100, 25])
    plain, started = (one(closed(x, y, n_starts=starts), "logistic", 0.1, tol=1e-4) for starts in (1, 2))
    assert started.errors[0] <= 28 < 90 < plain.errors[0]  # a certificate may cost a hundredth of the rows


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999), starts=st.integers(1, 5), unit=st.sampled_from([1e-12, 1e-3, 1.0, 1e8]))
def test_the_end_with_the_fewest_errors_is_kept_then_the_lowest_for_its_cut(seed, starts, unit):
    rng = np.random.default_rng(seed)
    errors, value, cut = rng.integers(0, 3, starts) * unit, rng.exponential(size=starts), rng.exponential(size=starts)
    spots = [Spot(np.zeros(1), cut[each], 0.0, value[each], errors[each]) for each in range(starts)]
    kept = ranked(spots)
    assert kept[0] is min(spots, key=lambda spot: (spot.errors, spot.value / spot.cut))
    assert sorted(map(id, kept)) == sorted(map(id, spots))


def test_more_starts_make_no_more_errors_and_some_make_fewer():
    fewer = 0
    for seed in range(16):
        X, y, _ = table(seed, 50, levels=1)
        loss = ("logistic", "hinge")[seed % 2]
        few, many = (one(closed(X, y, n_starts=starts), loss, 0.1, 0.01) for starts in (1, 6))
        assert many.errors[0] <= few.errors[0]
        fewer += many.errors[0] < few.errors[0]
        assert many.errors[0] == ((X @ many.coef[0] + many.intercept[0]) * y <= 1e-12).sum()
    assert fewer > 0


def test_more_starts_of_a_trimmed_sum_cost_no_more_and_some_cost_less():
    ratios = []
    for seed in range(8):
        X, y, _ = table(seed, 50)
        X[:8] *= -9
        values, problem = [], Problem("logistic", "trimmed", m=0.2)
        for starts in (1, 5):
            found = closed(X, y, n_starts=starts).solve([problem], np.zeros(1, dtype=int), 1e-3)
            losses = np.sort(np.logaddexp(0, -y * (X @ found.coef[0] + found.intercept[0])))
            values.append(losses[:40].sum() + 0.5 * found.coef[0] @ found.coef[0])
        ratios.append(values[1] / values[0])
    assert max(ratios) < 1.01
    assert min(ratios) < 0.99


@pytest.mark.parametrize("tol", [None, 1e-4])
def test_problems_are_solved_as_if_alone(tol):
    """Other alphas, other k on the same path, other losses and other folds in the same call do not matter."""
    X, y, rng = table(9)
    folds = np.array([np.ones(60), np.arange(60) % 3 > 0, rng.exponential(size=60)])
    problems = [
        Problem(loss, "close", k, alpha)
        for loss in ("logistic", "hinge", "sigmoid")[: 3 if tol is None else 2]
        for _ in range(3)
        for k in (0.5, 6)
        for alpha in (0.1, 10.0)
    ]
    fold_of = np.arange(len(problems)) // 4 % 3
    close = closed(X, y, folds, n_starts=2, threads=2)
    together = close.solve(problems, fold_of, tol)
    for place, problem in enumerate(problems):
        first = np.roll(folds, -fold_of[place], axis=0)  # its fold is the first of this engine
        alone = closed(X, y, first, n_starts=2).solve([problem], np.zeros(1, dtype=int), tol)
        for name in ("coef", "intercept", "errors", "gap"):
            np.testing.assert_array_equal(getattr(alone, name)[0], getattr(together, name)[place])
        assert alone.looks[0] <= together.looks[place]


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_rows_without_mass_are_no_rows(loss):
    X, y, rng = table(12, 61)
    mass = rng.exponential(size=61) * (np.arange(61) % 3 > 0)
    kept = mass > 0
    words = np.arange(61, dtype=np.uint64)
    whole = Engine(X, y, np.stack([mass, np.ones(61)]), words, n_starts=3)
    part = Engine(X[kept], y[kept], mass[None, kept], words[kept], n_starts=3)
    for k in (0.5, 5):
        np.testing.assert_allclose(one(whole, loss, k).coef, one(part, loss, k).coef, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_many_rows_begin_on_a_sample_and_end_on_all(monkeypatch, loss):
    X, y, _ = table(7, 900)
    expected = one(closed(X, y, n_starts=1), loss, 0.2)
    monkeypatch.setattr(module, "FROM_ROWS", 600)
    ends = one(closed(X, y, n_starts=1), loss, 0.2)
    np.testing.assert_allclose(ends.coef, expected.coef, rtol=0.1, atol=0.1)
    assert ends.errors[0] <= expected.errors[0] * 1.05 + 3


def test_a_sample_stands_for_all_rows(monkeypatch):
    """The sample has the same share of k and of the penalty, and its end is where the path on all rows starts."""
    monkeypatch.setattr(module, "FROM_ROWS", 600)
    X, y, rng = table(7, 900)
    close, order, seen = closed(X + 3, y, n_starts=1), rng.permutation(900), []
    other = Engine(close.X[order], y[order], np.ones((1, 900)), close.words[order], n_starts=1)
    begun, closed_from = module.follow, module.Selection.close

    def watched(rows, tasks, **how):
        seen.append([rows, *tasks, begun(rows, tasks, **how)])
        return seen[-1][-1]

    def continued(selection, tol):
        seen[-1].append((selection.rows, selection.ends[0].c))
        return closed_from(selection, tol)

    monkeypatch.setattr(module, "follow", watched)
    monkeypatch.setattr(module.Selection, "close", continued)
    one(close, k=0.2, alpha=6.0)
    one(other, k=0.2, alpha=6.0)
    for rows, task, [(spots, _)], (whole, c) in seen:
        assert (rows.samples, whole.samples) == (300, 900)
        assert (task.k.item(), task.alpha) == pytest.approx((60.0, 2.0))
        for found, wanted in zip(whole.to_parameters(c), rows.to_parameters(spots[0].c), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9)
    same = [{tuple(row) for row in np.round(rows.across[:, :300].T, 6)} for rows, *_ in seen]
    assert same[0] == same[1]


@pytest.mark.parametrize(("wider", "grown"), [(1.5, 1.0), (1.0, 1e4)])
def test_neither_a_wide_ramp_nor_a_wrong_mass_certifies(wider, grown):
    """At an average, whose own weights have no gap: a ramp that was not reached, or a cut that grew meanwhile."""
    X, y, _ = table(4, 40)
    rows = closed(X, y).rows(slice(None))
    walk = Walk(rows.margins("logistic", np.ones(40)), rows.penalized)
    best = walk.settle(np.zeros(4), np.inf).c
    cut = LossCut(CLOSE, 40.0, 40.0, False)

    walk.sharpen = lambda spot, cut, ramps, near: (Spot(best, spot.cut * grown), float(wider * ramps[-1]))
    assert np.isinf(narrow(walk, Spot(best, 60.0), cut, 1e-4)[1])
    walk.sharpen = lambda spot, cut, ramps, near: (spot, float(ramps[-1]))
    assert narrow(walk, Spot(best, 60.0), cut, 1e-4)[1] <= 1e-4


def test_a_certificate_that_costs_many_errors_is_not_taken(monkeypatch):
    X, y, _ = table(4, 40)
    best = one(closed(X, y), tol=None)
    monkeypatch.setattr(module, "narrow", lambda walk, end, cut, tol: (replace(end, c=-end.c), 0.0))
    found = one(closed(X, y), tol=1e-4)
    assert found.errors[0] == best.errors[0] < 20
    assert np.isinf(found.gap[0])


def test_nothing_inside_is_no_certificate():
    X, y, _ = table(2, 20)
    rows = closed(X.astype(np.float32), y).rows(slice(None))
    walk = Walk(rows.margins("logistic", np.ones(20)), rows.penalized)
    assert judge_spot(walk, Spot(np.full(4, 3.0), 1e-9), LossCut(CLOSE, 5.0, 5.0, False), 1.5) == (np.log(2), 1.0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("alpha", [0.0, 1e-4, 1e5])
def test_hard_tables_are_answered(loss, alpha):
    """Separable, constant, zero or tiny tables give finite numbers, and no certificate without alpha."""
    X, y, _ = table(0, 24)
    for data, labels, options in (
        (X, np.sign(X[:, 0]), {}),
        (np.zeros((24, 2)), y, {}),
        (np.zeros((24, 2)), y, {"fit_intercept": False}),
        (np.c_[X, np.full(24, 0.1), X[:, 0]], y, {"penalize_intercept": True}),
        (X[:2], y[:2], {}),
    ):
        ends = one(closed(data, labels, n_starts=2, **options), loss, 1, alpha, 1e-4)
        assert np.isfinite(ends.coef).all()
        assert np.isfinite(ends.intercept).all()
        assert alpha > 0 or np.isinf(ends.gap[0])
        assert ends.looks[0] < 200_000


def test_what_paths_serve():
    X, mass = np.zeros((20, 2)), np.ones(20)
    for item in (("logistic", "close", 5), ("hinge", "close_decay", 0.3), ("logistic", "atk", 5)):
        assert serves(X, Problem(*item), mass)
        assert not serves(sparse.csr_matrix(X), Problem(*item), mass)
        assert not serves(np.zeros((20, 256)), Problem(*item), mass)
    for item in (("logistic", "close", 20), ("logistic", "close"), ("logistic", "tilted(1)")):
        assert not serves(X, Problem(*item), mass)
    many = np.broadcast_to(np.zeros((1, 1)), (80_000, 1))
    assert serves(many, Problem("logistic", "close", 5), np.ones(80_000))
    assert not serves(many, Problem("hinge", "close", 5), np.ones(80_000))


@pytest.mark.parametrize(
    ("name", "k", "m", "counts"),
    [("atk", 5, None, (5, 0)), ("maximal", None, None, (1, 0)), ("trimmed", None, 3, (17, 3)),
     ("ranked_range", 8, 3, (5, 3)), ("top", 4, None, (1, 3))],
)  # fmt: skip
def test_cuts_count_what_their_aggregates_weigh(name, k, m, counts):
    cut, other = (cut_of(Problem(loss, name, k, 1.0, m), np.ones(20)) for loss in ("logistic", "sigmoid"))
    assert (cut.k, cut.m) == (other.k, other.m) == counts
    assert cut.convex > other.convex


def test_an_objective_of_nothing_is_no_error():
    """With the hinge loss, a huge alpha and few close calls, the value is exactly zero."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        X, y = np.round(rng.standard_normal((8, 3)) * 2) * 1e-8, np.where(rng.random(8) < 0.5, -1, 1)
        y[:2] = -1, 1
        assert np.isfinite(CloseKClassifier(k=0.5, alpha=1e5, loss="hinge", tol=1e-6).fit(X, y).coef_).all()


@pytest.mark.parametrize("seed", range(5))
def test_an_end_without_loss_is_kept_whatever_the_unit_of_the_masses(seed):
    """Divided by the smallest value, which is almost or exactly zero, the values of other ends would overflow."""
    X = np.random.default_rng(seed).normal(size=(20, 2))
    problem = Problem("modified_huber", "trimmed", alpha=0.0, m=0.05)
    ends = closed(X, np.sign(X[:, 0]), np.full(20, 1e30)).solve([problem], np.zeros(1, dtype=int))
    assert ends.errors[0] == 0
