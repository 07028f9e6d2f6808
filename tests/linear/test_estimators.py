"""The classifiers work with scikit-learn: estimator checks, routing, feature names, clones."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from closecall import (
    AggregateLossClassifier,
    AggregateLossClassifierCV,
    CloseKClassifier,
    CloseKClassifierCV,
)

#: Runs are short on purpose; test_warnings.py tests their warnings.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"alphas": (1.0,), "ks": (0.3,), "cv": 2, "max_iter": 9}
every_kind = pytest.mark.parametrize(
    "kind", [AggregateLossClassifier, CloseKClassifier, AggregateLossClassifierCV, CloseKClassifierCV]
)


def quick(kind: Any) -> Any:
    return kind(**SMALL) if kind.__name__.endswith("CV") else kind(max_iter=60, tol=1e-2)


def easy(samples: int = 120, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(samples, n_features=4, n_informative=3, n_redundant=0, random_state=3, **more)


def test_check_estimator_without_expected_failures() -> None:
    """Check one classifier; gate/test_scikit_learn.py checks the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # runs are short on purpose
        warnings.simplefilter("ignore", sklearn.exceptions.SkipTestWarning)
        results = check_estimator(CloseKClassifier(max_iter=24), on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert failed == {}
    assert len(results) > 50


def test_exact_intercept_never_has_more_training_errors() -> None:
    for seed in range(5):
        X, y = make_classification(150, n_features=3, n_informative=2, n_redundant=0, flip_y=0.3, random_state=seed)
        plain = AggregateLossClassifier().fit(X, y)
        moved = AggregateLossClassifier(exact_intercept=True).fit(X, y)
        assert moved.score(X, y) >= plain.score(X, y)
        np.testing.assert_array_equal(plain.coef_, moved.coef_)


@every_kind
def test_metadata_routing(kind: Any) -> None:
    X, y = easy()
    weight = np.random.default_rng(0).integers(1, 3, len(y)).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = quick(kind).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipe = make_pipeline(scaler, routed).fit(X, y, sample_weight=weight)
    direct = quick(kind).fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_array_equal(pipe[-1].coef_, direct.coef_)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@every_kind
def test_data_frames(kind: Any, library: str) -> None:
    frames = pytest.importorskip(library, reason=f"needs {library}: pip install {library}")
    X, y = easy()
    table, labels = frames.DataFrame({name: X[:, i] for i, name in enumerate("abcd")}), np.where(y > 0, "yes", "no")
    model = quick(kind).fit(table, frames.Series(labels))
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.predict(table).tolist() == quick(kind).fit(X, labels).predict(X).tolist()
    for wrong in (table[list("dcba")], table.rename(**{"columns" if library == "pandas" else "mapping": {"a": "z"}})):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(wrong)


@every_kind
def test_dense_sparse_and_read_only_agree(kind: Any) -> None:
    X, y = easy()
    X[np.abs(X) < 0.5] = 0
    X.setflags(write=False)
    settings = SMALL if kind.__name__.endswith("CV") else {"max_iter": 300, "tol": 1e-3}
    dense, scattered = kind(**settings).fit(X, y), kind(**settings).fit(sparse.csr_array(X), y)
    assert (dense.predict(X) == scattered.predict(sparse.csc_matrix(X))).mean() > 0.9
    np.testing.assert_array_equal(dense.predict(X), dense.predict(X.tolist()))


@every_kind
def test_copies_and_float32(kind: Any) -> None:
    X, y = easy()
    X = X.astype(np.float32)
    model = quick(kind).fit(X, y)
    assert model.coef_.dtype == model.decision_function(X).dtype == np.float32
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert kind.__name__ in model._repr_html_()
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("aggregate", ["average", "close_decay"])
@pytest.mark.parametrize("form", ["ovr", "softmax", "top_two"])
@pytest.mark.parametrize("classes", [2, 3])
def test_to_sklearn_predicts_the_same(loss: str, aggregate: str, form: str, classes: int) -> None:
    """Logistic regression stays logistic regression, with its probabilities; all others become a LinearSVC."""
    X, y = make_blobs(150, centers=classes, n_features=3, cluster_std=4, random_state=1)
    if (loss, form, classes) == ("hinge", "softmax", 3):
        return  # refused
    model = AggregateLossClassifier(loss=loss, aggregate=aggregate, k=0.4, multiclass=form, max_iter=90)
    labels = np.array(["a", "b", "c"])[y]
    other = model.fit(X, labels).to_sklearn()
    regression = (loss, aggregate) == ("logistic", "average") and not (form == "top_two" and classes == 3)
    assert hasattr(model, "predict_proba") == hasattr(other, "predict_proba") == regression
    assert isinstance(other, LinearSVC) != regression
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    np.testing.assert_allclose(other.decision_function(X), model.decision_function(X))
    if regression:
        np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(("form", "classes"), [("ovr", 2), ("top_two", 2), ("ovr", 4), ("softmax", 4)])
def test_logistic_regression_has_the_probabilities_of_scikit_learns(form: str, classes: int) -> None:
    X, y = make_blobs(400, centers=classes, n_features=3, cluster_std=5, random_state=2)
    peer = LogisticRegression(C=2.0, tol=1e-10, max_iter=1000)
    expected = (OneVsRestClassifier(peer) if (form, classes) == ("ovr", 4) else peer).fit(X, y).predict_proba(X)
    model = AggregateLossClassifier(alpha=0.5, multiclass=form, tol=1e-7)
    assert hasattr(model, "predict_proba") == (form != "top_two")  # the top-two form is not logistic regression
    np.testing.assert_allclose(model.fit(X, y).predict_proba(X), expected, atol=1e-5)
    np.testing.assert_allclose(model.to_sklearn().predict_proba(X), expected, atol=1e-5)
    kept = CloseKClassifierCV(alphas=[0.5], guard=50, multiclass="top_two", tol=1e-6).fit(X, y)
    assert kept.aggregate_ == "average"
    np.testing.assert_allclose(kept.predict_proba(X), peer.fit(X, y).predict_proba(X), atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        CloseKClassifier(),
        CloseKClassifierCV(guard=0, alphas=[1.0]),
        AggregateLossClassifierCV(),
        AggregateLossClassifierCV(aggregate="average"),
        AggregateLossClassifier(exact_intercept=True),
        AggregateLossClassifier(loss="focal"),
        AggregateLossClassifier(aggregate="tilted(1)"),
    ],
    ids=repr,
)
def test_what_is_not_logistic_regression_names_calibration(model: Any) -> None:
    X, y = easy()
    for asked in (model, *([] if hasattr(model, "guard") and model.guard != 0 else [clone(model).fit(X, y)])):
        assert not hasattr(asked, "predict_proba")
        with pytest.raises(AttributeError, match="has no attribute 'predict_proba'") as told:
            asked.predict_proba(X)
        assert "calibration='sigmoid'" in str(told.value.__cause__)


def test_a_whole_number_that_is_a_float_says_how_it_is_read() -> None:
    """k=1.0 means all examples and warns, except among other fractions and for aggregates without k."""
    X, y = easy()
    words = "k=1.0 is a fraction and selects all examples. Pass the int k=1 for one example, or k=None"
    with pytest.warns(UserWarning, match=words) as told:
        whole = CloseKClassifier(k=1.0, max_iter=60).fit(X, y)
    assert [each.filename for each in told if each.category is UserWarning] == [__file__]
    assert whole.k_ == len(y)
    for ks in ([1.0], np.array([1.0]), [1.0, 10]):
        with pytest.warns(UserWarning, match=words) as told:
            CloseKClassifierCV(**SMALL | {"ks": ks}).fit(X, y)
        assert [each.filename for each in told if each.category is UserWarning] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert CloseKClassifier(k=1, max_iter=60).fit(X, y).k_ == 1
        CloseKClassifier(k=None, max_iter=60).fit(X, y)
        CloseKClassifierCV(**SMALL | {"ks": [0.1, 1.0]}).fit(X, y)
        AggregateLossClassifier(k=1.0).fit(X, y)


def test_support_is_the_k_nearest_the_threshold() -> None:
    X, y = easy()
    model = CloseKClassifier(k=12).fit(X, y)
    margins = np.where(y == 1, 1, -1) * model.decision_function(X)
    closeness = np.abs(np.logaddexp(0, -margins) - np.log(2))
    assert model.support_.tolist() == sorted(np.argsort(closeness)[:12])
    assert model.k_ == 12.0


def test_boundary_distance_is_euclidean() -> None:
    X, y = make_blobs(90, centers=3, cluster_std=2, random_state=0)
    model = AggregateLossClassifier().fit(X, y)
    distances = model.boundary_distance(X)
    assert (distances >= 0).all()
    rng = np.random.default_rng(0)
    for row in range(0, 90, 10):  # the prediction changes only beyond the distance
        steps = rng.normal(size=(4000, 2))
        steps /= np.linalg.norm(steps, axis=1, keepdims=True)
        assert set(model.predict(X[row] + 0.999 * distances[row] * steps)) == {model.predict(X[[row]])[0]}
        assert len(set(model.predict(X[row] + 1.01 * distances[row] * steps))) > 1


def test_optimality_gap() -> None:
    X, y = np.arange(8.0)[:, None], [0, 0, 1, 0, 1, 1, 0, 1]
    gap = CloseKClassifier(k=3, alpha=0.01).fit(X, y).optimality_gap(X, y)
    assert gap.proven
    assert gap.errors - gap.lower_bound == gap.gap >= 0
    assert gap.lower_bound == 2
    with pytest.raises(ValueError, match="labels that are not classes of the model"):
        CloseKClassifier().fit(X, y).optimality_gap(X, [5] * 8)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_calibrated_probabilities(method: str, classes: int) -> None:
    X, y = make_blobs(600, centers=classes, n_features=2, cluster_std=5, random_state=4)
    model = CloseKClassifier(calibration=method, max_iter=90, random_state=0).fit(X, y)
    found = model.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    # Calibrated: of the examples with probability near p, a share near p is positive (bins >= 100, 4 errors).
    for low in np.arange(0, 1, 0.25):
        rows = (found[:, 1] >= low) & (found[:, 1] < low + 0.25)
        if rows.sum() >= 100:
            error = 4 * 0.5 / np.sqrt(rows.sum())
            assert abs(found[rows, 1].mean() - (y[rows] == 1).mean()) < error


def test_warm_start_goes_on_and_init_is_checked() -> None:
    X, y = easy(300)
    model = AggregateLossClassifier(alpha=1e-3, warm_start=True, tol=1e-5).fit(X, y)
    first = model.n_iter_[0]
    assert model.fit(X, y).n_iter_[0] <= first
    started = AggregateLossClassifier(alpha=1e-3, init=(model.coef_, model.intercept_)).fit(X, y)
    np.testing.assert_allclose(started.coef_, model.coef_, rtol=1e-2)
    with pytest.raises(ValueError, match=r"init must be .* with shapes \(1, 4\) and \(1,\)"):
        AggregateLossClassifier(init=(np.zeros(3), 0.0)).fit(X, y)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"loss": "cubic"}, "unknown loss 'cubic'; choose one of: focal"),
        ({"k": 10_000}, "k=10000 exceeds the 120 examples"),
        ({"k": 1.5}, "not a fraction"),
        ({"k": 12.0}, "not a fraction in .0, 1.; pass an int for a count of examples, k=12$"),
        ({"alpha": np.nan}, "alpha=nan must be a finite number"),
        ({"multiclass": "ovo"}, "unknown multiclass 'ovo'; choose one of: ovr, softmax, top_two"),
        ({"calibration": "beta"}, "unknown calibration 'beta'"),
        ({"class_weight": {7: 2}}, r"classes that y does not contain: \[7\]"),
        ({"class_weight": "even"}, "must be 'balanced', a dict"),
        ({"class_weight": {0: 0}}, "gives a class the weight 0"),
        ({"max_iter": 0}, "max_iter=0 must be a whole number >= 1"),
        ({"exact_intercept": True, "fit_intercept": False}, "needs fit_intercept=True"),
        ({"init": "ones"}, "unknown init 'ones'"),
        ({"n_starts": -1}, "n_starts"),
        ({"solver": "paths"}, "unknown solver"),
    ],
)
def test_bad_parameters_say_what_to_do(params: dict[str, Any], words: str) -> None:
    X, y = easy()
    with pytest.raises(ValueError, match=words):
        CloseKClassifier(**params).fit(X, y)


def test_bad_data_says_what_to_do() -> None:
    X, y = easy()
    with pytest.raises(ValueError, match="only one class"):
        CloseKClassifier().fit(X, np.zeros(120))
    with pytest.raises(ValueError, match="NaN"):
        CloseKClassifier().fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="negative values; weights are masses"):
        CloseKClassifier().fit(X, y, sample_weight=-np.ones(120))
    with pytest.raises(ValueError, match="expecting 4 features"):
        CloseKClassifier().fit(X, y).predict(X[:, :2])
    with pytest.raises(ValueError, match="works on one score at a time; use multiclass='ovr'"):
        AggregateLossClassifier(exact_intercept=True, multiclass="top_two").fit(X, np.arange(120) % 3)
    with pytest.raises(ValueError, match="needs multiclass='top_two' or 'ovr'"):
        AggregateLossClassifier(multiclass="softmax", loss="hinge").fit(X, np.arange(120) % 3)


def test_verbose_prints_one_line_and_unfinished_warns(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = easy()
    CloseKClassifier(verbose=1).fit(X, y)
    assert "k=12 of 120" in capsys.readouterr().out
    with pytest.warns(ConvergenceWarning, match="scale the features"):
        AggregateLossClassifier(max_iter=2, tol=1e-9).fit(X * [1, 10, 100, 1000], y)
