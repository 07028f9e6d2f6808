"""All classifiers pass scikit-learn's estimator checks; `tests` checks one of them."""

import warnings
from typing import Any

import pytest
import sklearn
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import check_estimator

from closecall import AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifier, CloseKClassifierCV
from closecall.model_selection import ExactThresholdClassifier, GuardedClassifierCV
from closecall.network import ResidualMLPClassifier, ResidualMLPClassifierCV

SMALL: dict[str, Any] = {"alphas": (1.0,), "ks": (0.3,), "cv": 2, "max_iter": 9}
QUICK: dict[str, Any] = {"max_iter": 12, "learning_rate": 0.3, "hidden": 3}
#: Runs are short, because the checks are about behaviour and there are 64 for each class.
CHECKED = [
    AggregateLossClassifier(max_iter=60),
    AggregateLossClassifier(aggregate="atk", k=0.9, loss="hinge", max_iter=24),
    CloseKClassifier(max_iter=24, multiclass="top_two"),
    AggregateLossClassifier(multiclass="softmax", aggregate="close_decay", k=0.5, max_iter=24),
    CloseKClassifierCV(**SMALL),
    AggregateLossClassifierCV(loss="hinge", aggregate="close", **SMALL),
    GuardedClassifierCV(LogisticRegression(), [("bayes", GaussianNB())], cv=2),
    GuardedClassifierCV(RidgeClassifier(), LogisticRegression(), cv=2, guard=0),
    ExactThresholdClassifier(LogisticRegression(), cv=2, n_bootstrap=5, random_state=0),
    ExactThresholdClassifier(GaussianNB(), cv=2, n_bootstrap=5, random_state=0),
    ResidualMLPClassifier(alpha=0.01, **QUICK),
    ResidualMLPClassifierCV(alphas=[0.01], ks=[0.5], cv=2, n_starts=2, **QUICK),
]


@pytest.mark.parametrize("estimator", CHECKED, ids=repr)
def test_scikit_learn_finds_no_fault(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sklearn.exceptions.SkipTestWarning)
        warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
        results = check_estimator(estimator, on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert failed == {}
    assert len(results) > 40
    # Only the check that needs SCIPY_ARRAY_API may be skipped.
    assert {each["check_name"] for each in results if each["status"] == "skipped"} <= {"check_array_api_input"}
