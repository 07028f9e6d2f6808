"""The meta-estimators, compared with plain loops, scikit-learn and brute force, and on noise."""

import itertools
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris, make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from closecall.model_selection import ExactThresholdClassifier, GuardedClassifierCV
from closecall.model_selection.folds import equal_rows, fold_pairs
from closecall.model_selection.offsets import best_offsets
from closecall.paired import GUARD, STRICT, Gain, Units, compare, in_balance, over_folds, paired
from closecall.panel import panel_of


def moons(samples: int = 240) -> tuple[np.ndarray, np.ndarray]:
    return sklearn.datasets.make_moons(samples, noise=0.25, random_state=4)


class Cut(ClassifierMixin, BaseEstimator):
    """Predict whether the first column is above a fixed value."""

    def __init__(self, at: float = 0.0) -> None:
        self.at = at

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Cut":
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[(X[:, 0] > self.at).astype(int)]


def test_scores_and_the_paired_gain_over_both_divisions_are_those_of_plain_loops() -> None:
    X, y = moons()
    members = LogisticRegression(), KNeighborsClassifier()
    model = GuardedClassifierCV(members[0], {"near": members[1]}).fit(X, y)
    right = np.zeros((2, 2, len(y)))
    for seed in (0, 1):
        for fold, (train, test) in enumerate(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y)):
            for place, member in enumerate(members):
                right[seed, place, test] = clone(member).fit(X[train], y[train]).predict(X[test]) == y[test]
            if seed == 0:
                scores = right[0][:, test].mean(axis=1)
                np.testing.assert_allclose(model.cv_results_[f"split{fold}_test_score"], scores)
    found, difference = model.guard_report_["comparison"], right[:, 1] - right[:, 0]
    assert found["gain"] == pytest.approx(difference.mean())
    # A second division makes the mean more stable; the error is that of one division.
    spread = ((difference - difference.mean()) ** 2).mean(axis=0).sum() / (len(y) - 1)
    assert found["standard_error"] == pytest.approx(np.sqrt(spread / len(y)))
    assert found["needed"] == pytest.approx(
        stats.t.isf(stats.norm.sf(GUARD), found["degrees_of_freedom"]) * found["standard_error"]
    )
    assert model.best_name_ == "near"
    np.testing.assert_array_equal(model.predict(X), KNeighborsClassifier().fit(X, y).predict(X))
    assert model.score(X, y) == pytest.approx((model.predict(X) == y).mean())


def test_each_fold_judges_a_blend_of_what_the_other_folds_prefer() -> None:
    random = np.random.default_rng(7)
    X, y = random.normal(size=(90, 4)), random.integers(0, 2, 90)
    folds = list(StratifiedKFold(3, shuffle=True, random_state=3).split(X, y))
    members = [LogisticRegression(), GaussianNB(), KNeighborsClassifier(3), DecisionTreeClassifier(random_state=0)]
    right = np.array([[(m.fit(X[a], y[a]).predict(X[b]) == y[b]) for a, b in folds] for m in members], dtype=object)
    gains = np.full(90, np.nan)
    for fold, (_, test) in enumerate(folds):
        others = [other for other in range(3) if other != fold]
        rest = [np.concatenate([right[m, o].astype(float) - right[0, o] for o in others]) for m in (1, 2, 3)]
        scores = np.array([each.sum() / np.sqrt((each**2).sum()) for each in rest])
        shares = np.exp(3 * (scores - scores.max()))
        shares[shares < 0.05] = 0
        own = np.array([right[m, fold].astype(float) - right[0, fold] for m in (1, 2, 3)])
        gains[test] = shares / shares.sum() @ own
    named = dict(zip("abc", members[1:], strict=True))
    model = GuardedClassifierCV(members[0], named, cv=folds, refit=False).fit(X, y)
    assert model.guard_report_["comparison"]["gain"] == pytest.approx(np.nanmean(gains))
    assert model.guard_report_["fresh_folds"] == 0


@pytest.mark.parametrize("informative", [False, True])
def test_a_challenger_must_be_better_than_guessing(informative: bool) -> None:
    """It is easy to beat a baseline that is worse than a constant prediction; that alone proves nothing."""
    random = np.random.default_rng(11)
    X = random.normal(size=(300, 3))
    y = (X[:, 0] + random.normal(size=300) > -0.5 if informative else random.random(300) < 0.65).astype(int)
    weight = random.integers(1, 4, 300).astype(float)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=1).split(X, y))
    stump = DecisionTreeClassifier(max_depth=1)
    coin = DummyClassifier(strategy="uniform", random_state=0)
    model = GuardedClassifierCV(coin, {"stump": stump}, cv=folds, guard=0.5).fit(X, y, weight)
    found, right = model.guard_report_["comparison"], np.zeros(300)
    for train, test in folds:
        right[test] = clone(stump).fit(X[train], y[train], weight[train]).predict(X[test]) == y[test]
    recalls = [np.average(right[y == label], weights=weight[y == label]) for label in (0, 1)]
    assert found["gain"] > found["needed"]
    assert found["over_guessing"] == pytest.approx(np.mean(recalls) - 0.5)
    assert (found["over_guessing"] > found["over_guessing_needed"]) == found["taken"] == informative
    assert ("above guessing" in model.guard_report_["reason"]) == (not informative)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_gains_over_guessing_are_those_of_balanced_accuracy_and_noise_has_none(classes: int) -> None:
    """Compare the standard error with the spread of the balanced accuracy of predictions that ignore the labels."""
    random = np.random.default_rng(classes)
    n, shares = 400, random.dirichlet(np.full(classes, 4.0))
    codes, weights = random.choice(classes, n, p=shares), random.integers(1, 4, n).astype(float)
    drawn = random.choice(classes, (500, n), p=random.dirichlet(np.ones(classes)))
    gains, balanced = in_balance((drawn == codes) - 1 / classes, codes, weights)
    found = [paired(each, balanced) for each in gains]
    truth = [balanced_accuracy_score(codes, each, sample_weight=weights) - 1 / classes for each in drawn]
    assert [each.mean for each in found] == pytest.approx(truth, abs=1e-12)
    ratios = np.array([each.mean / each.standard_error for each in found])
    assert abs(ratios.mean()) < 0.15
    assert 0.85 < ratios.std() < 1.15
    assert np.mean([each.mean > each.needed(2.0) for each in found]) < 0.05


def test_a_gain_below_the_guard_leaves_the_baseline() -> None:
    X, y = moons()
    contest = GuardedClassifierCV(LogisticRegression(), [("near", KNeighborsClassifier())])
    found = contest.fit(X, y).guard_report_["comparison"]
    strict = clone(contest).set_params(guard=1.01 * found["gain"] / found["standard_error"]).fit(X, y)
    assert (contest.best_name_, strict.best_name_) == ("near", "baseline")
    np.testing.assert_array_equal(strict.predict(X), LogisticRegression().fit(X, y).predict(X))
    assert "baseline is kept" in strict.guard_report_["reason"]


def test_other_scores_are_compared_by_folds_with_the_correction() -> None:
    X, y = make_classification(300, weights=[0.8], random_state=0)
    for scoring in ("balanced_accuracy", make_scorer(balanced_accuracy_score), "neg_log_loss"):
        model = GuardedClassifierCV(LogisticRegression(), [("bayes", GaussianNB())], scoring=scoring).fit(X, y)
        gains = []
        for seed in (0, 1):
            folds = StratifiedKFold(5, shuffle=True, random_state=seed)
            first, second = (
                cross_val_score(member, X, y, cv=folds, scoring=scoring)
                for member in (GaussianNB(), LogisticRegression())
            )
            gains.append(first - second)
        flat = np.concatenate(gains)
        found = model.guard_report_["comparison"]
        assert found["gain"] == pytest.approx(flat.mean())
        assert found["standard_error"] == pytest.approx(flat.std(ddof=1) * np.sqrt(1 / 10 + 60 / 240))
    assert over_folds(np.array([0.3]), 0.25).standard_error == np.inf
    factor = over_folds(flat, 0.25, challengers=16).needed(2.0) / over_folds(flat, 0.25).standard_error
    assert factor == pytest.approx(stats.t.isf(stats.norm.sf(2) / 4, 9))
    members = DecisionTreeClassifier(random_state=0), {"guess": DummyClassifier()}
    report = GuardedClassifierCV(*members, scoring="neg_log_loss").fit(X, y).guard_report_
    assert "score is +0.00 points above guessing" in report["reason"]


def test_weights_train_and_score_through_pipelines() -> None:
    X, y = moons(120)
    mass = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    members = {"near": make_pipeline(StandardScaler(), GaussianNB())}
    model = GuardedClassifierCV(LogisticRegression(), members, guard=0).fit(X, y, sample_weight=mass)
    train, test = next(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    scaler = StandardScaler().fit(X[train])
    direct = GaussianNB().fit(scaler.transform(X[train]), y[train], mass[train])
    expected = direct.score(scaler.transform(X[test]), y[test], mass[test])
    assert model.cv_results_["split0_test_score"][1] == pytest.approx(expected)
    with pytest.raises(ValueError, match="accepts none in fit"):
        GuardedClassifierCV(LogisticRegression(), [("near", KNeighborsClassifier())]).fit(X, y, sample_weight=mass)


def test_searches_take_part_and_parameters_reach_inside() -> None:
    X, y = moons()
    tuned = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 15]}, cv=3)
    contest = GuardedClassifierCV(LogisticRegression(), [("tuned", tuned)])
    assert contest.get_params()["tuned__estimator__weights"] == "uniform"
    contest.set_params(tuned__estimator__weights="distance", baseline__C=0.1)
    assert tuned.estimator.weights == "distance"
    assert contest.fit(X, y).best_estimator_.best_params_ == {"n_neighbors": 15}
    contest.set_params(tuned=GaussianNB())
    assert isinstance(contest.challengers[0][1], GaussianNB)
    copied = clone(contest)
    assert copied.challengers[0][1] is not contest.challengers[0][1]


@pytest.mark.parametrize("seed", range(10))
def test_offsets_cannot_be_bettered_one_class_at_a_time(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(20, 3))
    costs = (1 - np.eye(3))[random.integers(0, 3, 20)] * random.uniform(0.5, 2, (20, 3))
    weights = random.uniform(0.5, 2, 20)
    rows = np.arange(20)

    def cost(offsets: np.ndarray) -> float:
        return float(weights @ costs[rows, (scores + offsets).argmax(axis=1)])

    offsets = best_offsets(scores, costs, weights)
    assert cost(offsets) <= cost(np.zeros(3)) + 1e-12
    for code in range(3):
        rivals = np.delete(scores + offsets, code, axis=1).max(axis=1) - scores[:, code]
        cuts = np.sort(rivals)
        for place in [cuts[0] - 1, *(cuts[:-1] + cuts[1:]) / 2, cuts[-1] + 1]:
            trial = offsets.copy()
            trial[code] = place
            assert cost(offsets) <= cost(trial) + 1e-9


def shifted() -> tuple[np.ndarray, np.ndarray]:
    """Return skewed features, for which the threshold of naive Bayes is in the wrong place."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 600)
    X = np.exp(random.normal(size=(600, 3)) + 0.8 * y[:, None])
    return np.hstack([X, X[:, :1]]), y


def test_a_real_gain_moves_the_threshold_and_a_false_one_does_not() -> None:
    X, y = shifted()
    model = ExactThresholdClassifier(GaussianNB(), random_state=0).fit(X[:400], y[:400])
    assert model.guard_report_["taken"]
    assert model.score(X[400:], y[400:]) > GaussianNB().fit(X[:400], y[:400]).score(X[400:], y[400:]) + 0.02
    low, high = model.threshold_interval_
    assert low <= model.threshold_ <= high
    kept = ExactThresholdClassifier(GaussianNB(), guard=50, random_state=0).fit(X[:400], y[:400])
    assert kept.threshold_ == kept.default_threshold_ == 0.5
    assert kept.optimum_ == model.threshold_
    np.testing.assert_array_equal(kept.predict(X), GaussianNB().fit(X[:400], y[:400]).predict(X))


def test_more_classes_have_offsets() -> None:
    X, y = load_iris(return_X_y=True)
    skewed = np.concatenate([np.arange(50), np.arange(50, 60), np.arange(100, 150)])
    for member in (LogisticRegression(C=0.01), GaussianNB(), RandomForestClassifier(10, random_state=0)):
        model = ExactThresholdClassifier(member, objective="balanced_accuracy", guard=0, n_bootstrap=20, random_state=0)
        model.fit(X[skewed], y[skewed])
        assert model.threshold_.shape == (3,)
        assert model.threshold_interval_.shape == (2, 3)
        plain = clone(member).fit(X[skewed], y[skewed])
        found, before = (balanced_accuracy_score(y, m.predict(X)) for m in (model, plain))
        assert found >= before - 0.02


def test_wrong_arguments_raise_errors() -> None:
    X, y = moons(60)
    for challengers, match in (
        ([], "empty"), ([("a", GaussianNB()), ("a", GaussianNB())], "two classifiers"),
        ([("a__b", GaussianNB())], "must not contain"), ([("cv", GaussianNB())], "cannot be called"),
        ([("a", StandardScaler())], "must be a classifier"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            GuardedClassifierCV(LogisticRegression(), challengers).fit(X, y)
    for given, match in (
        ({"objective": "f1"}, "accuracy"), ({"objective": [[0, 1, 2]]}, "shape"), ({"guard": -1}, "guard"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            ExactThresholdClassifier(LogisticRegression(), **given).fit(X, y)
    with pytest.raises(ValueError, match="only one example"):
        ExactThresholdClassifier(LogisticRegression()).fit(X[:5], [0, 1, 0, 0, 0])


def test_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="drawing needs closecall[plots]")
    matplotlib.use("agg")
    from closecall.model_selection import GuardDisplay, ThresholdDisplay

    X, y = moons()
    contest = GuardedClassifierCV(LogisticRegression(), [("near", KNeighborsClassifier())]).fit(X, y)
    shown = GuardDisplay.from_estimator(contest)
    assert [label.get_text() for label in shown.ax_.get_yticklabels()] == ["baseline", "near"]
    model = ExactThresholdClassifier(LogisticRegression(), random_state=0).fit(X, y)
    assert len(ThresholdDisplay.from_estimator(model).ax_.lines) == 3
    many = ExactThresholdClassifier(GaussianNB(), n_bootstrap=0).fit(*load_iris(return_X_y=True))
    with pytest.raises(ValueError, match="two classes"):
        ThresholdDisplay.from_estimator(many)
    matplotlib.pyplot.close("all")


def test_equal_rows_are_found_in_whatever_form() -> None:
    pandas = pytest.importorskip("pandas", reason="needs closecall[bench]")
    rows = np.array([[1.6e18, 0.0], [1.6e18 + 1e6, 0.0], [1.6e18, -0.0], [2.0, np.nan], [2.0, -np.nan]])
    expected = np.array([0, 1, 0, 2, 2])  # in order of appearance: hashes of text would differ between processes
    frame = pandas.DataFrame({"town": ["c", "b", "c", "a", "a"], "size": [1, 1, 1, 2, 2]})
    gaps = frame.assign(age=[np.nan, 1.0, None, np.nan, pandas.NA], day=pandas.NaT)
    for given in (rows, rows.tolist(), frame, frame.to_numpy().tolist(), ["x", "y", "x", "a", "a"], gaps):
        assert equal_rows(given).tolist() == expected.tolist()
    parts = [1.0, 2, 1, 3, 3, 3, 2, 1], [1, 0, 1, 0, 1, 0, 1, 1], [0, 1, 2, 3, 5, 8]  # one 3 is stored as 2 + 1
    codes = equal_rows(sparse.csr_matrix(parts))
    np.testing.assert_array_equal(codes[:, None] == codes, expected[:, None] == expected)
    assert len(set(equal_rows([{"a": 1}, {"a": 1}]).tolist())) == 2  # values that cannot be hashed are not compared


@pytest.mark.parametrize("copies", [20, 80])
def test_copies_of_any_multiplicity_stay_on_one_side(copies: int) -> None:
    """A neighbour that has seen a copy of a test row is always right about it; the labels are noise."""
    random = np.random.default_rng(copies)
    X, y = random.normal(size=(61, 4)), random.permutation(np.arange(61) % 2)
    rows = random.permutation(np.r_[np.repeat(np.arange(60), 3), np.full(copies, 60)])
    for fresh in (False, True):
        pairs = fold_pairs(None, X[rows], y[rows], None, fresh=fresh)
        assert sorted(np.concatenate([test for _, test in pairs])) == list(range(len(rows)))
        assert all(not np.isin(rows[test], rows[train]).any() for train, test in pairs)
    model = GuardedClassifierCV(LogisticRegression(), {"near": KNeighborsClassifier(1)}, refit=False)
    assert model.fit(X[rows], y[rows]).guard_report_["comparison"]["gain"] < 0.15
    mixed = random.permutation(np.arange(len(rows)) % 2)
    assert all(not np.isin(rows[test], rows[train]).any() for train, test in fold_pairs(None, X[rows], mixed, None))
    discrete = random.choice(2, (len(rows), 3), p=[0.3, 0.7])  # rows of discrete columns are equal by chance
    tested = [test for _, test in fold_pairs(None, discrete, mixed, None)]
    assert max(map(len, tested)) < 1.25 * min(map(len, tested))


@pytest.mark.parametrize("rare", [False, True])
def test_copies_whose_labels_differ_are_not_recognised(rare: bool) -> None:
    """Models that recognise copies of a row predict 90 % of its labels correctly; the labels of new rows are noise.

    With ``rare``, one class has fewer distinct rows than there are folds.
    """
    chosen = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        share = np.ones(60) if rare else np.arange(1, 61) ** -1.5
        rows = np.append(np.arange(60), random.choice(60, 340, p=share / share.sum()))
        labels, flips = random.permutation(60), random.random(400) < 0.1
        y = labels[rows] < 3 if rare else labels[rows] % 2 ^ flips
        members = [GaussianNB(), KNeighborsClassifier(1), DecisionTreeClassifier(random_state=0)]
        model = GuardedClassifierCV(LogisticRegression(), members, refit=False)
        model.fit(random.normal(size=(60, 5))[rows], y.astype(int))
        chosen += model.guard_report_["chosen"] != "baseline"
    assert chosen <= 3  # 15 and 17 of 20 if copies are on both sides; P(more than 3 of 20 at 5 %) is 1.6 %


def test_frames_and_text_pass_through() -> None:
    pandas = pytest.importorskip("pandas", reason="needs closecall[bench]")
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    random = np.random.default_rng(0)
    table = pandas.DataFrame({"town": random.choice(["a", "b", "c"], 120), "size": random.normal(size=120)})
    y = np.where((table["town"] == "a") ^ (table["size"] > 0), "yes", "no")
    encode = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    members = [make_pipeline(encode, member) for member in (LogisticRegression(), DecisionTreeClassifier(max_depth=4))]
    model = GuardedClassifierCV(members[0], {"tree": members[1]}).fit(table, y)
    assert model.best_name_ == "tree"
    assert set(model.predict(table)) <= {"yes", "no"}
    assert model.feature_names_in_.tolist() == ["town", "size"]
    ExactThresholdClassifier(members[0], random_state=0).fit(table, y).predict(table)
    assert list(itertools.islice(model.classes_, 2)) == ["no", "yes"]


@pytest.mark.parametrize(
    ("rare", "usual"), [(3, 0.5), (6, 0.75), (10, 0.9), (30, 0.9), (3, None), (10, None), (100, None)]
)
def test_gains_in_balanced_accuracy_by_chance_have_the_level(rare: int, usual: float | None) -> None:
    """Predictions that do not depend on the labels, or two models that are equally good in each class (``None``)."""
    random = np.random.default_rng(rare)
    codes, passed = np.repeat([0, 1], [200 - rare, rare]), []
    panel = panel_of([np.arange(0, 200, 2), np.arange(1, 200, 2)], Units(np.arange(200)), np.ones(200))
    for _ in range(400):
        if usual is None:
            one, two = random.random((2, 200)) < np.where(codes == 1, 0.5, 0.9)
            values, guess = one.astype(float) - two, 0.0
        else:
            values, guess = ((random.random(200) < usual) == codes).astype(float), 0.5
        found = panel.informed(values, values[None], codes, np.zeros(200), reference=usual is None)
        each = [values[codes == code] for code in (0, 1)]
        assert found.mean == pytest.approx(np.mean([of.mean() for of in each]) - guess)
        assert found.standard_error >= 0.999 * np.sqrt(sum(of.var() / len(of) for of in each)) / 2
        passed.append(found.mean > found.needed(STRICT))
    assert np.mean(passed) < 0.05


@pytest.mark.parametrize("units", [2, 3, 5])
@pytest.mark.parametrize("kind", ["groups", "members over time", "items of users"])
def test_a_class_of_few_independent_units_proves_little(units: int, kind: str) -> None:
    """A few groups contain all rows of a class; predictions are constant in each group and independent of the class."""
    random, passed = np.random.default_rng(units), []
    member = np.tile(np.arange(30), 10)
    codes, place = (member < units).astype(int), np.arange(300)
    weights = (150 / np.bincount(codes))[codes]
    found = {"groups": Units(member), "members over time": Units(place, time=True, other=member)}
    panel = panel_of(np.array_split(place, 5), found.get(kind, Units(place % 7, other=member)), weights)
    for _ in range(400):
        right = ((random.random(30) < 0.5)[member] == codes).astype(float)
        gain = panel.informed(right, right[None], codes, np.zeros(300), reference=False)
        passed.append(gain.mean > gain.needed(STRICT))
    assert np.mean(passed) < 0.05


def test_blocks_with_many_rows_are_better_evidence_than_six_rows() -> None:
    codes, right = np.arange(3000) % 2, (np.random.default_rng(0).random(3000) < 0.75).astype(float)
    panel = panel_of(np.array_split(np.arange(3000), 5), Units(np.arange(3000), time=True), np.ones(3000))
    gain = panel.informed(right, right[None], codes, np.zeros(3000), reference=False)
    assert 0.15 < gain.needed(STRICT) < gain.mean


def test_flips_in_one_class_hide_a_gain_in_accuracy_but_not_in_balanced_accuracy() -> None:
    """The labels of 45 % of the positives are wrong: the better model is chosen unless the guard is strict."""
    taken, gains = [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        X = random.normal(size=(800, 1))
        truth = (X[:, 0] > 0).astype(int)
        y = np.where((truth == 1) & (random.random(800) < 0.45), 0, truth)
        at = [Cut(0.3), Cut(0.0)]  # the baseline is shifted, as logistic regression would be
        model = GuardedClassifierCV(at[0], {"other": at[1]}).fit(X, y)
        found = model.guard_report_["comparison"]
        taken.append(found["taken"])
        gains.append(found["gain"] / found["standard_error"])
        strict = clone(model).set_params(guard=50.0).fit(X, y).guard_report_["comparison"]
        assert not strict["taken"]
        if found["taken"] and found["gain"] <= found["needed"]:
            assert found["balanced"] > GUARD
            assert "balanced accuracy is higher by" in model.guard_report_["reason"]
    assert np.mean(taken) > np.mean(np.array(gains) > 1) + 0.2


def test_a_gain_in_balanced_accuracy_alone_is_not_enough() -> None:
    """A loss of accuracy is never accepted, and a small positive gain needs the guard in balanced accuracy."""
    guessing, better = Gain(0.3, 0.01, np.inf, 500), Gain(0.05, 0.01, np.inf, 500)

    def taken(gain: float, guard: float) -> bool:
        found = Gain(gain, 0.01, np.inf, 500)
        return compare("a", "b", found, guard, lambda reference: better if reference else guessing).taken

    assert [taken(gain, 1.0) for gain in (-0.005, 0.0, 0.005)] == [False, False, True]
    assert [taken(0.005, guard) for guard in (2.0, 4.9, 5.1)] == [True, True, False]
