"""Every parameter of every linear classifier changes something, or a reason why it does not is given here."""

import contextlib
import io
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning

import closecall
from closecall import AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifier, CloseKClassifierCV
from closecall.linear.base import LinearClassifier

ONE = {"max_iter": 60, "alpha": 0.1}
SEARCH = {"max_iter": 30, "alphas": (0.1, 10.0), "ks": (0.2,), "guard": 0}
#: Settings in which the parameters of each estimator are changed.
ESTIMATORS: dict[type, dict[str, Any]] = {
    AggregateLossClassifier: {"aggregate": "close", "k": 0.3, **ONE},
    CloseKClassifier: {"k": 0.3, **ONE},
    AggregateLossClassifierCV: {"aggregate": "close", **SEARCH},
    CloseKClassifierCV: SEARCH,
}
PAIRS = [(np.arange(0, 120), np.arange(120, 160)), (np.arange(40, 160), np.arange(0, 40))]
#: parameter -> (what else is set, the value it is changed to); a string states why a change must not matter.
CHANGES: dict[str, tuple[dict[str, Any], Any] | str] = {
    "loss": ({}, "hinge"),
    "aggregate": ({}, "atk"),
    "k": ({}, 0.7),
    "m": ({"aggregate": "trimmed", "m": 0.05}, 0.2),
    "alpha": ({}, 10.0),
    "max_iter": ({"tol": 0.0}, 1),
    "solver": ({"ks": (0.05, 0.5)}, "algorithm1"),
    "n_starts": ({"n_starts": 1, "ks": (0.01, 0.5), "k": 3, "alpha": 0.001, "alphas": (0.001,)}, 9),
    "tol": ({}, 0.3),
    "fit_intercept": ({}, False),
    "penalize_intercept": ({"alpha": 30.0, "alphas": (30.0,), "solver": "algorithm1"}, True),
    "exact_intercept": ({}, True),
    "class_weight": ({}, {1: 4.0}),
    "multiclass": ({"classes": 3, "multiclass": "top_two"}, "ovr"),
    "calibration": ({}, "sigmoid"),
    "init": ({"aggregate": "close", "max_iter": 4}, "zeros"),
    "warm_start": ({"max_iter": 4, "twice": True}, True),
    "random_state": ({"calibration": "sigmoid", "random_state": 0}, 1),
    "verbose": ({}, 1),
    "alphas": ({}, (1000.0,)),
    "ks": ({}, (0.02,)),
    "ms": ({"aggregate": "trimmed", "ms": (0.05,)}, (0.4,)),
    "cv": ({"cv": PAIRS[:1]}, PAIRS[1:]),
    "scoring": ({}, "roc_auc"),
    "guard": ({}, 1000.0),
    "refit": ({}, False),
    "n_jobs": "the number of threads; the same model whatever it is, see test_threads_do_not_change_the_choice",
}


def data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    if classes > 2:
        return make_blobs(160, centers=classes, cluster_std=6.0, random_state=0)
    return make_classification(160, n_features=4, weights=[0.6], flip_y=0.2, random_state=3)


def outcome(model: Any, classes: int, twice: bool) -> dict[str, Any]:
    """Return everything a user can see of a fitted model: arrays, scores, the choice, and printed text."""
    X, y = data(classes)
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # short runs on purpose
        for _ in range(1 + twice):
            model.fit(X, y)
    names = ("coef_", "intercept_", "calibrators_", "best_params_", "best_score_")
    seen = {name: getattr(model, name) for name in names if hasattr(model, name)}
    if hasattr(model, "cv_results_"):
        seen["scores"] = model.cv_results_["mean_test_score"]
    return {"printed": printed.getvalue(), **seen}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    try:
        np.testing.assert_equal(second, first)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ESTIMATORS for name in kind().get_params()])
def test_a_parameter_matters(kind: type, name: str) -> None:
    assert name in CHANGES, f"{name} is new: say in CHANGES what it changes, or why it does not"
    change = CHANGES[name]
    if isinstance(change, str):
        pytest.skip(change)
    extra, value = change
    known = kind().get_params()
    settings = ESTIMATORS[kind] | {key: item for key, item in extra.items() if key in known}
    classes, twice = extra.get("classes", 2), extra.get("twice", False)
    base = outcome(kind(**settings), classes, twice)
    assert same(base, outcome(kind(**settings), classes, twice)), "the same settings, twice, must be the same model"
    assert not same(base, outcome(kind(**settings | {name: value}), classes, twice)), f"{name} changes nothing"


def test_algorithm_1_penalises_the_intercept() -> None:
    settings = ONE | {"solver": "algorithm1", "alpha": 30.0}
    models = [AggregateLossClassifier(**settings, penalize_intercept=given) for given in (False, True)]
    assert not same(*(outcome(model, 2, False) for model in models))


#: Where a parameter is documented as not used: (what is set, how many classes, parameter, value).
UNUSED: list[tuple[dict[str, Any], int, str, Any]] = [
    ({"aggregate": "average"}, 2, "k", 0.5),
    ({"aggregate": "average"}, 2, "m", 0.2),
    ({"aggregate": "maximal"}, 2, "k", 0.5),
    ({"aggregate": "trimmed", "m": 0.1}, 2, "k", 0.5),
    ({"aggregate": "close", "k": 0.3}, 2, "m", 0.2),
    ({"fit_intercept": False}, 2, "penalize_intercept", True),
    ({"loss": "hinge"}, 2, "multiclass", "softmax"),
    ({}, 2, "random_state", 7),
]


@pytest.mark.parametrize(("settings", "classes", "name", "value"), UNUSED)
def test_a_parameter_that_is_not_used_changes_nothing(
    settings: dict[str, Any], classes: int, name: str, value: Any
) -> None:
    """The documentation of each states "only used by" or "only used with"."""
    first, second = (AggregateLossClassifier(**ONE | settings | more) for more in ({}, {name: value}))
    assert same(outcome(first, classes, False), outcome(second, classes, False))


def test_all_linear_classifiers_are_listed() -> None:
    public = [getattr(closecall, name) for name in closecall.__all__]
    linear = {item for item in public if isinstance(item, type) and issubclass(item, LinearClassifier)}
    assert linear == set(ESTIMATORS)
