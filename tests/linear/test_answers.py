"""Compare the searches with models fitted by hand: their starts, their scores and their baseline."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, log_loss, make_scorer
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from closecall import AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifier, CloseKClassifierCV
from closecall.linear import race
from closecall.linear.fitting import within
from closecall.linear.splits import by_chance, stratified_folds
from closecall.objective import Problem
from closecall.solvers import solve

QUICK: dict[str, Any] = {"alphas": (0.1, 10.0), "ks": (0.3,), "max_iter": 60}
METRICS = {"f1": f1_score, "accuracy": accuracy_score}


def plain(samples: int = 200, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(samples, n_features=5, flip_y=0.2, random_state=1, **more)


def folds_of(y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(3).split(np.zeros(len(y)), y))


@pytest.mark.parametrize("aggregate", ["close", "close_decay", "top", "atk"])
def test_no_model_starts_from_one_that_saw_its_test_rows(aggregate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start is cold, or a model that was trained on exactly the rows that the new one trains on."""
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    seen: dict[bytes, set[bytes]] = {}
    warm = 0

    def spied(training: Any, problems: Any, options: Any, *, parts: Any = None) -> Any:
        nonlocal warm
        rows = [np.asarray(parts.masks[fold], dtype=bool)[parts.group].tobytes() for fold in parts.fold_of]
        if not isinstance(options.init, str):
            warm += 1
            for start, mine in zip(options.init[0], rows, strict=True):
                assert mine in seen[start.tobytes()]
        found = real(training, problems, options, parts=parts)
        for coef, mine in zip(found.coef, rows, strict=True):
            seen.setdefault(coef.tobytes(), set()).add(mine)
        return found

    real = race.fit_models
    monkeypatch.setattr(race, "fit_models", spied)
    AggregateLossClassifierCV(aggregate=aggregate, **QUICK).fit(X, y)
    assert (warm > 0) == (aggregate in ("close_decay", "atk"))  # problems that depend on their start always start cold


def test_each_fold_judges_what_the_other_folds_prefer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gain of the guard, recomputed in plain loops from the outcomes of the folds."""
    seen: list[Any] = []

    def spied(self: Any, groups: Any) -> Any:
        found = real(self, groups)
        seen.append((self, groups, *found))
        return found

    real = race.Race._gain_of_rows
    monkeypatch.setattr(race.Race, "_gain_of_rows", spied)
    rng, y = np.random.default_rng(0), (np.arange(80) % 3 == 0).astype(int)
    model = CloseKClassifierCV(alphas=(0.01, 1.0, 100.0), ks=(0.1, 0.4), max_iter=30, cv=folds_of(y), n_starts=1)
    model.fit(rng.normal(size=(80, 6)), y)
    ((run, (averages, *others), gain, informed),) = seen
    rest = {0: (1, 2), 1: (0, 2), 2: (0, 1)}

    def right(place: int, fold: int) -> np.ndarray:
        return run.right[int(place), fold] * run.judging[folds_of(y)[fold][1]]  # outliers are not used to evaluate

    def of_settings(place: int) -> tuple[float, ...]:  # the order in which equally good settings are preferred
        setting = run.settings[place]
        return -(1.0 if setting.k is None else setting.k), -setting.alpha

    held = [
        max(averages, key=lambda place: (sum(right(place, f).sum() for f in rest[fold]), run.settings[place].alpha))
        for fold in range(3)
    ]
    places = [place for group in others for place in sorted(group, key=of_settings) if (place, 0) in run.right]
    wins = {(place, fold): right(place, fold) - right(held[fold], fold) for place in places for fold in range(3)}
    total, mixed, known, over = 0.0, 0, np.zeros(80), np.zeros(80)
    for fold in range(3):
        pooled = {place: np.concatenate([wins[place, f] for f in rest[fold]]) for place in places}
        scores = {p: v.sum() / np.sqrt((v**2).sum()) if v.any() else 0.0 for p, v in pooled.items()}
        best = sorted(places, key=lambda place: -round(scores[place], 9))[:3]
        shares = np.exp([3 * (scores[place] - scores[best[0]]) for place in best])
        shares[shares < 0.05] = 0
        total += sum(s * wins[place, fold].sum() for s, place in zip(shares / shares.sum(), best, strict=True))
        test = folds_of(y)[fold][1]
        blend = sum(s * right(p, fold) for s, p in zip(shares / shares.sum(), best, strict=True))
        known[test], over[test] = blend, blend - right(held[fold], fold)
        mixed += (shares > 0).sum() > 1
    of_class = np.bincount(y, run.judging)
    recall, found = np.bincount(y, known) / of_class, informed(False)
    assert found.mean == pytest.approx(np.mean(recall) - 0.5)
    error = np.sqrt(np.sum((run.judging * (known - recall[y]) / of_class[y] / 2) ** 2))
    share = (recall * of_class + 1) / (of_class + 2)  # with one more correct and one more wrong row of each class
    error = max(error, np.sqrt(np.sum(share * (1 - share) / (of_class + 2))) / 2)
    assert found.standard_error == pytest.approx(error, rel=0.03)  # the jackknife's factor
    won, found = np.bincount(y, over) / of_class, informed(True)
    assert found.mean == pytest.approx(np.mean(won))
    assert found.standard_error >= 0.97 * np.sqrt(np.sum((run.judging * (over - won[y]) / of_class[y] / 2) ** 2))
    assert gain.mean == pytest.approx(total / run.judging.sum())
    assert mixed > 0
    assert model.guard_report_["comparisons"][0]["gain"] == gain.mean


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_calibration_starts_cold() -> None:
    X, y = plain()
    fresh = CloseKClassifier(calibration="sigmoid", random_state=0, max_iter=60).fit(X, y)
    again = CloseKClassifier(calibration="sigmoid", random_state=0, max_iter=60, warm_start=True).fit(X, 1 - y)
    again.fit(X, y)
    np.testing.assert_array_equal(fresh.calibrators_[0], again.calibrators_[0])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("aggregate", ["trimmed", "ranked_range", "atk"])
def test_scores_are_those_of_models_fitted_by_hand(aggregate: str) -> None:
    X, y = plain()
    train, test = folds_of(y)[0]
    model = AggregateLossClassifierCV(
        aggregate=aggregate, alphas=(1.0,), ks=(0.5,), ms=(0.1, 40, 0.9), cv=[(train, test)], guard=0, max_iter=300
    ).fit(X, y)
    tried = [p for p in model.cv_results_["params"] if p["aggregate"] == aggregate]
    assert [p["m"] for p in tried] == {"trimmed": [0.1, 40, 0.9], "ranked_range": [0.1, 40], "atk": [None]}[aggregate]
    for params in tried:
        hand = AggregateLossClassifier(
            **{n: params[n] for n in ("aggregate", "k", "m", "alpha")}, max_iter=300, tol=1e-3
        )
        place = model.cv_results_["params"].index(params)
        expected = hand.fit(X[train], y[train]).score(X[test], y[test])
        assert model.cv_results_["split0_test_score"][place] == pytest.approx(expected, abs=0.031)
        np.testing.assert_equal(model.cv_results_["param_m"][place], np.array(params["m"], float))


def test_m_is_fitted_and_reported() -> None:
    """A fifth of the rows lies on the wrong side; a model that trims them is right everywhere else."""
    X = np.concatenate([np.linspace(-2, -0.1, 80), np.linspace(0.1, 2, 80), [-4.0] * 20, [4.0] * 20])[:, None]
    y, mixed = np.repeat([0, 1, 1, 0], [80, 80, 20, 20]), np.random.default_rng(0).permutation(200)
    model = AggregateLossClassifierCV(aggregate="trimmed", alphas=(1e-3,), ms=(0.2,), guard=0, max_iter=300)
    model.fit(X[mixed], y[mixed])
    assert model.best_params_["aggregate"] == "trimmed"
    assert model.m_ == pytest.approx(0.2 * 200)
    assert model.score(X[:160], y[:160]) == 1
    assert model.coef_[0, 0] > 1 > AggregateLossClassifier(alpha=1e-3).fit(X, y).coef_[0, 0]
    hand = AggregateLossClassifier(aggregate="trimmed", m=0.2, alpha=1e-3).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), hand.predict(X))
    with pytest.raises(ValueError, match="needs m < k"):
        AggregateLossClassifierCV(aggregate="ranked_range", ks=(0.1,), ms=(0.5,)).fit(X, y)


def test_an_exact_intercept_that_is_taken_is_fitted() -> None:
    """Few positives just below many negatives: only the threshold of the average is wrong."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(-1, 0.05, 40), rng.uniform(0, 1, 460)])[:, None]
    y = np.repeat([1, 0], [40, 460])
    model = AggregateLossClassifierCV(aggregate="average", alphas=(1.0,), guard=0).fit(X, y)
    assert model.best_params_["exact_intercept"]
    moved, plain_fit = (AggregateLossClassifier(alpha=1.0, exact_intercept=exact).fit(X, y) for exact in (True, False))
    assert model.score(X, y) == moved.score(X, y) > plain_fit.score(X, y)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1, 1: 9}])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("scoring", ["f1", "accuracy"])
def test_class_weights_train_and_do_not_score(class_weight: Any, weights: bool, scoring: str) -> None:
    X, y = plain(300, weights=[0.8])
    mass = np.random.default_rng(0).random(len(y)) + 0.5 if weights else None
    model = AggregateLossClassifierCV(
        aggregate="average", alphas=(1.0,), cv=folds_of(y), scoring=scoring, guard=0, class_weight=class_weight
    ).fit(X, y, sample_weight=mass)
    for fold, (train, test) in enumerate(folds_of(y)):
        trained, tested = (None, None) if mass is None else (mass[train], mass[test])
        hand = LogisticRegression(C=1.0, class_weight=class_weight, tol=1e-6).fit(X[train], y[train], trained)
        found = METRICS[scoring](y[test], hand.predict(X[test]), sample_weight=tested)
        # In float32, one example may be classified differently.
        assert model.cv_results_[f"split{fold}_test_score"][0] == pytest.approx(found, abs=0.025)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_class_weights_do_not_bend_the_probabilities() -> None:
    X, y = plain(400, weights=[0.85])
    model = CloseKClassifier(class_weight={1: 20}, calibration="sigmoid", random_state=0).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.08)  # of the weighted rows: 0.84


@pytest.mark.parametrize("multiclass", ["ovr", "top_two", "softmax"])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_the_baseline_of_many_classes_is_multinomial_logistic_regression(multiclass: str, loss: str) -> None:
    if (multiclass, loss) == ("softmax", "hinge"):
        with pytest.raises(ValueError, match="needs multiclass='top_two' or 'ovr'"):
            AggregateLossClassifierCV(multiclass=multiclass, loss=loss, aggregate="average", **QUICK).fit(
                *load_iris(return_X_y=True)
            )
        return
    X, y = make_blobs(150, centers=4, cluster_std=4.0, random_state=3)
    X = StandardScaler().fit_transform(X)
    model = CloseKClassifierCV(loss=loss, multiclass=multiclass, guard=1000, cv=folds_of(y), **QUICK).fit(X, y)
    theirs = LogisticRegression(C=1 / model.alpha_, tol=1e-8, max_iter=2000).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=0.01)
    assert model.guard_report_["baseline"] == "multinomial logistic regression"
    assert "against multinomial logistic regression" in model.guard_report_["reason"]
    assert model.best_params_["multiclass"] == model.multiclass_ == "softmax"
    place = model.best_index_
    for fold, (train, test) in enumerate(folds_of(y)):
        hand = LogisticRegression(C=1 / model.alpha_, tol=1e-6, max_iter=2000).fit(X[train], y[train])
        found = model.cv_results_[f"split{fold}_test_score"][place]
        assert found == pytest.approx(hand.score(X[test], y[test]), abs=0.021)


def test_a_count_above_a_fold_is_all_of_it() -> None:
    X, y = plain(100)
    model = AggregateLossClassifierCV(aggregate="atk", alphas=(1.0,), ks=(90, 20), cv=5, guard=0, max_iter=300).fit(
        X, y
    )
    found = np.stack([model.cv_results_[f"split{fold}_test_score"] for fold in range(5)], axis=1)
    scores = {params["k"]: row for params, row in zip(model.cv_results_["params"], found, strict=True)}
    np.testing.assert_allclose(scores[90], scores[None], atol=0.051)  # 90 of 80 is all: `average`
    assert within(Problem("logistic", "trimmed", m=90), 80.0, 100.0).m == pytest.approx(0.9)
    assert within(Problem("logistic", "ranked_range", 95, m=60), 80.0, 100.0).m == 60


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("aggregate", "counts", "shares"),
    [
        ("close", {"k": 95}, {"k": None}),
        ("top", {"k": 95}, {"k": None}),
        ("trimmed", {"m": 85}, {"m": 0.85}),
        ("ranked_range", {"k": 0.9, "m": 75}, {"k": 0.9, "m": 0.75}),
    ],
)
def test_a_count_above_a_fold_of_the_calibration(aggregate: str, counts: Any, shares: Any) -> None:
    """Each fold of the calibration trains on 80 of 100 rows; these counts are too large for a fold only."""
    settings: dict[str, Any] = {"aggregate": aggregate, "calibration": "sigmoid", "random_state": 0, "max_iter": 60}
    one, two = (AggregateLossClassifier(**settings, **each).fit(*plain(100)) for each in (counts, shares))
    np.testing.assert_array_equal(one.calibrators_, two.calibrators_)


@pytest.mark.parametrize("cv", [None, 5, KFold(4), "pairs"])
def test_groups_that_nothing_looks_at_are_an_error(cv: Any) -> None:
    X, y = plain(80)
    cv = folds_of(y) if cv == "pairs" else cv
    with pytest.raises(ValueError, match="ignores them"):
        CloseKClassifierCV(cv=cv, **QUICK).fit(X, y, groups=np.arange(80) // 8)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_copies_share_a_fold_and_rows_that_are_often_equal_by_chance_do_not(store: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(6, size=(90, 2)), rng.integers(2, size=90)
    assert by_chance(equal := X @ [1, 6], store(X)).all()
    assert len({*zip(equal, stratified_folds(y, equal, store(X), 5, 0), strict=True)}) == len({*equal})  # few copies
    X, five = rng.normal(size=(40, 4)), np.arange(200) // 5
    X = np.where(np.abs(X) < 0.8, 0.0, X)[five]
    X[:, 0], y = five % 10 == 0, rng.integers(2, size=200)
    equal = np.unique(X, axis=0, return_inverse=True)[1].ravel()
    zero, fold = (X == 0).all(axis=1), stratified_folds(y, equal, store(X), 5, 0)
    assert len({*fold[zero]}) > 1
    assert by_chance(equal, store(X)).sum() == len({*equal[(X[:, 1:] == 0).all(axis=1)]}) > 1
    assert len({*zip(equal[~zero], fold[~zero], strict=True)}) == len({*equal[~zero]})


def test_groups_stay_together() -> None:
    X, y = plain(120)
    groups = np.arange(120) // 8

    class Own:
        def split(self, X: Any, y: Any, groups: Any) -> Any:
            return GroupKFold(3).split(X, y, groups)

        def get_n_splits(self, *_: Any) -> int:
            return 3

    own, same = (CloseKClassifierCV(cv=cv, **QUICK).fit(X, y, groups=groups) for cv in (Own(), GroupKFold(3)))
    assert own.guard_report_ == same.guard_report_
    assert CloseKClassifierCV(cv=StratifiedGroupKFold(3), **QUICK).fit(X, y, groups=groups).best_score_ > 0.5
    with pytest.raises(ValueError, match="groups has 120 missing values; give every row one"):
        CloseKClassifierCV(cv=GroupKFold(2)).fit(X, y, groups=[None, np.nan] * 60)


def test_a_scorer_without_weights() -> None:
    """Rows with whole weights are repeated, other weights cause a warning, and there is never a TypeError."""
    X, y = plain(90)

    def right(model: Any, X: Any, y: Any) -> float:
        return float((model.predict(X) == y).mean())

    made = make_scorer(lambda y_true, y_found: float((y_true == y_found).mean()))
    whole = np.random.default_rng(0).integers(1, 4, 90)
    for scoring in (right, made):
        search = CloseKClassifierCV(scoring=scoring, cv=folds_of(y), **QUICK)
        known = CloseKClassifierCV(scoring=None, cv=folds_of(y), **QUICK).fit(X, y, sample_weight=whole)
        np.testing.assert_allclose(search.fit(X, y, sample_weight=whole).cv_results_["split0_test_score"][:2],
                                   known.cv_results_["split0_test_score"][:2])  # fmt: skip
        with pytest.warns(UserWarning, match="takes no sample_weight"):
            search.fit(X, y, sample_weight=whole + 0.5)

    def broken(model: Any, X: Any, y: Any) -> float:
        raise TypeError("something else")

    with pytest.raises(TypeError, match="something else"):
        CloseKClassifierCV(scoring=broken, **QUICK).fit(X, y, sample_weight=whole)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_probabilities(classes: int) -> None:
    X, y = make_blobs(90, centers=classes, cluster_std=2.5, random_state=0)
    search = CloseKClassifierCV(calibration="sigmoid", scoring="neg_log_loss", random_state=0, **QUICK)
    model = search.set_params(alphas=(1.0,), cv=3).fit(X, y)
    prior = np.tile(np.bincount(y) / len(y), (len(y), 1))
    assert -model.best_score_ < log_loss(y, prior)
    assert log_loss(y, model.predict_proba(X)) < log_loss(y, prior)
    assert -search.set_params(cv=folds_of(y)[:1]).fit(X, y).best_score_ < log_loss(y, prior)


def heavy(samples: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Columns with heavy tails; the label is a noisy threshold of their logarithms. Short runs do not converge."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(samples, 5))
    X = np.column_stack([np.exp(3 * Z[:, :3]), Z[:, 3], Z[:, 4] > 0.5])
    y = Z[:, 0] - 0.7 * Z[:, 1] + 0.6 * Z[:, 3] + 1.2 * (Z[:, 4] > 0.5) + 0.7 * rng.normal(size=samples) > 0.2
    return StandardScaler().fit_transform(X), y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_choice_is_fitted_until_it_settles() -> None:
    X, y = heavy()
    settings: dict[str, Any] = {"alphas": (1e-3,), "ks": (0.1,), "guard": 0, "solver": "algorithm1"}
    short = CloseKClassifierCV(max_iter=30, **settings).fit(X, y)
    assert short.aggregate_ == "close_decay"
    assert 30 < short.n_iter_.max() < 300  # it continued, and then stopped by itself
    cut = solve(X, np.where(y, 1, -1), [Problem("logistic", "close_decay", 0.1, 1e-3)], max_iter=30, tol=1e-3)
    right = ((X @ cut.coef[0] + cut.intercept[0] > 0) == y).mean()
    assert short.score(X, y) > right + 0.01
    assert short.gap_.shape == (1,)
    assert short.converged_ == bool((short.gap_ <= 1e-3).all())


def test_a_choice_that_has_not_settled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closecall.linear.search.EXTRA", 0)
    X, y = heavy()
    model = CloseKClassifierCV(alphas=(1e-3,), ks=(0.1,), guard=0, max_iter=30)
    with pytest.warns(ConvergenceWarning, match="stopped after .* its choice of examples has not settled"):
        model.fit(sparse.csr_matrix(X), y)


def test_a_fit_that_ran_off_to_one_class_names_it() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 2)), np.where(rng.random(1000) < 0.3, "yes", "no")
    with pytest.warns(ConvergenceWarning, match="only examples of class no carry weight.* Increase k"):
        model = CloseKClassifier(k=0.3).fit(X, y)
    assert set(y[model.support_]) == set(model.predict(X)) == {"no"}
    assert not model.converged_
    with pytest.warns(ConvergenceWarning, match="its choice of examples has not settled"):
        CloseKClassifier(k=0.3, penalize_intercept=True, max_iter=3, tol=1e-12).fit(X, y)
