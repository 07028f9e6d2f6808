"""Methods that all fitted linear classifiers share."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from .._names import Array, lookup
from ..aggregates import AGGREGATES, check_mass, get_aggregate
from ..losses import LOSSES
from ..objective import Problem
from ..theory import minimum_errors
from .calibration import CALIBRATIONS, calibrate, probabilities
from .fitting import Options, close_calls, codes_of, exact_intercepts, fit_models, rounding_of, scores_of, warn_of_fit
from .persistence import load_model, save_model
from .splits import Splits
from .training import Training, check_training


@dataclass(frozen=True)
class OptimalityGap:
    """Training errors compared with a lower bound that holds for every linear classifier.

    ``errors`` is the mass that this classifier misclassifies, ``lower_bound`` is a lower bound on the mass that any
    linear classifier misclassifies, and ``gap`` is the difference. ``proven`` states whether some linear classifier is
    proven to attain the bound.
    """

    errors: float
    lower_bound: float
    gap: float
    proven: bool


def own_form(model: Any) -> str | None:
    """Return the form of a logistic regression ("ovr" or "softmax"), or None for any other model.

    For a search, this is the form of the model that the search chose. A model with two classes has one score and counts
    as "ovr".
    """
    fitted = getattr(model, "best_params_", {}) if hasattr(model, "alphas") else vars(type(model)) | vars(model)
    loss, aggregate, moved = (fitted.get(name) for name in ("loss", "aggregate", "exact_intercept"))
    if moved or loss not in LOSSES or aggregate not in AGGREGATES:
        return None
    form = getattr(model, "multiclass_", model.multiclass)
    if len(getattr(model, "classes_", ())) == 2:
        form = "ovr"
    regression = LOSSES[loss].likelihood and AGGREGATES[aggregate].plain
    return form if regression and form in ("ovr", "softmax") else None


def has_probabilities(estimator: Any) -> bool:
    """Return True if the model is calibrated or is logistic regression; otherwise raise an ``AttributeError``."""
    if getattr(estimator, "calibration", None) is None and own_form(estimator) is None:
        raise AttributeError(
            f"this {type(estimator).__name__} is not logistic regression and has no probabilities; set "
            "calibration='sigmoid' or 'isotonic' to fit them on held-out folds, or use decision_function"
        )
    return True


def calibrators_of(model: Any) -> list[Array] | None:
    """Return the calibrators of a fitted model: one array for each score, or None for a softmax model."""
    if getattr(model, "calibration", None) is not None:
        return model.calibrators_
    return None if own_form(model) == "softmax" else [np.array([1.0, 0.0])] * len(model.intercept_)


class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Methods for a classifier with ``coef_``, ``intercept_`` and ``classes_``."""

    coef_: Array
    intercept_: Array
    classes_: Array
    calibrators_: list[Array]

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self, "coef_")
        with np.errstate(over="ignore", invalid="ignore"):  # the sum that detects NaN may overflow
            return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the rows, with shape (samples,) for two classes and (samples, classes) for more.

        With two classes, a positive score predicts ``classes_[1]``; with more, the class with the largest score is
        predicted.
        """
        scores = self._scores(self._checked(X))
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: Any) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = scores_of(X, self.coef_, self.intercept_)
        if not np.isfinite(scores).all():
            raise ValueError("some rows of X have scores that are not finite; scale the features as in training")
        return scores

    def predict(self, X: Any) -> Array:
        """Return class labels (samples,).

        Scores that differ only by rounding errors, which depend on the processor, count as equal; of several classes
        with the same score, the first is predicted.
        """
        X = self._checked(X)
        scores = self._scores(X)
        return self.classes_[codes_of(scores, rounding_of(X, self.coef_, self.intercept_, scores))]

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities (samples, classes) for a calibrated model or for logistic regression.

        A model that minimises the average logistic loss is logistic regression, even if a search chose it. One-vs-rest
        probabilities are normalised as in scikit-learn's OneVsRestClassifier. All other models need ``calibration``,
        which is fitted to out-of-fold scores. A class that ``predict`` does not choose may have a probability above one
        half: close-k places its boundary where it makes few errors, not where the probability is one half.
        """
        scores = self.decision_function(X)
        return probabilities(calibrators_of(self), scores if scores.ndim == 2 else scores[:, None])

    def boundary_distance(self, X: Any) -> Array:
        """Return the Euclidean distance of each row to the decision boundary, with shape (samples,).

        For two classes, the distance is positive on the side of ``classes_[1]`` and negative on the other side. For
        more classes, it is the distance to the nearest point at which another class would be predicted. The distance is
        infinite if all coefficients are zero.

        Examples
        --------
        >>> from closecall import AggregateLossClassifier
        >>> X, y = np.array([[-1.0, 0.0], [-2.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), [0, 0, 1, 1]
        >>> AggregateLossClassifier().fit(X, y).boundary_distance([[3.0, 5.0]]).round(3).tolist()
        [3.0]
        """
        scores, coef = self.decision_function(X), self.coef_.astype(np.float64)
        samples, winners = np.arange(len(scores)), codes_of(scores[:, None] if scores.ndim == 1 else scores)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a distance may be infinite
            if scores.ndim == 1:
                distances = scores / np.hypot.reduce(coef[0])
                return np.where(np.isnan(distances), np.copysign(np.inf, scores), distances)
            # Unlike np.linalg.norm, hypot does not overflow.
            norms = np.hypot.reduce(coef[:, None] - coef[None], axis=-1)[winners]
            distances = (scores[samples, winners][:, None] - scores) / norms
        distances[np.isnan(distances)] = np.inf
        distances[samples, winners] = np.inf
        return distances.min(axis=1)

    def optimality_gap(self, X: Any, y: Any, sample_weight: Any = None, *, time_limit: float = 60.0) -> OptimalityGap:
        """Return the errors on X (samples, features) with labels y, together with a proven lower bound.

        The bound holds for every linear classifier. This method needs two classes and is practical only for small
        problems. After ``time_limit`` seconds, the best bound found so far is returned.

        Examples
        --------
        >>> from closecall import CloseKClassifier
        >>> X, y = [[-2.0], [-1.0], [0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1, 1, 1]
        >>> CloseKClassifier(k=2, alpha=0.01).fit(X, y).optimality_gap(X, y)
        OptimalityGap(errors=1.0, lower_bound=1.0, gap=0.0, proven=True)
        """
        predicted = self.predict(X)
        if len(self.classes_) != 2:
            raise ValueError(f"optimality_gap needs two classes; this model has {len(self.classes_)}")
        y = np.asarray(y)
        strange = np.setdiff1d(y, self.classes_)
        if strange.size:
            raise ValueError(f"y contains labels that are not classes of the model: {strange[:5].tolist()}")
        mass = np.ones(len(y)) if sample_weight is None else check_mass(sample_weight, len(y))
        labels = np.where(y == self.classes_[1], 1, -1)
        best = minimum_errors(self._checked(X), labels, mass, time_limit=time_limit, start=self.coef_)
        errors = float(mass[predicted != y].sum())
        return OptimalityGap(errors, best.lower_bound, max(errors - best.lower_bound, 0.0), best.proven)

    def to_sklearn(self) -> LogisticRegression | OneVsRestClassifier | LinearSVC:
        """Return a fitted scikit-learn model with the same predictions, for tools such as ONNX and PMML.

        A logistic regression becomes a LogisticRegression or, if it is one-vs-rest, a OneVsRestClassifier. Any other
        model becomes a LinearSVC, which has no ``predict_proba``; any calibration is dropped.

        Examples
        --------
        >>> from closecall import CloseKClassifier
        >>> model = CloseKClassifier(k=2).fit([[-2.0], [-1.0], [1.0], [2.0]], ["no", "no", "yes", "yes"])
        >>> model.to_sklearn().predict([[0.5]]).tolist()
        ['yes']
        """
        check_is_fitted(self, "coef_")
        form = own_form(self)
        if form == "ovr" and len(self.classes_) > 2:
            plain = OneVsRestClassifier(LogisticRegression())
            plain.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(self.classes_)
            plain.estimators_ = [
                self._filled(LogisticRegression(), coef_=coef[None], intercept_=shift[None], classes_=np.array([0, 1]))
                for coef, shift in zip(self.coef_, self.intercept_, strict=True)
            ]
            return self._filled(plain, classes_=self.classes_)
        plain = LogisticRegression() if form else LinearSVC()
        return self._filled(plain, coef_=self.coef_, intercept_=self.intercept_, classes_=self.classes_)

    def _filled(self, plain: Any, **fitted: Array) -> Any:
        """Return a scikit-learn model with the given attributes and with those that all such models have."""
        common = {name: vars(self)[name] for name in ("n_features_in_", "feature_names_in_") if name in vars(self)}
        vars(plain).update(fitted, **common, n_iter_=np.atleast_1d(getattr(self, "n_iter_", 1)))
        return plain

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file, without pickle; see :func:`closecall.linear.load_model`."""
        check_is_fitted(self, "coef_")
        save_model(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Any:
        """Read a model written by ``save``; a damaged, altered or unrelated file raises ``ValueError``."""
        return load_model(path, expected=cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class _InMemory(LinearClassifier):
    """The parameters that all classifiers in this package share, and the common parts of their ``fit`` methods."""

    max_iter: int
    tol: float
    solver: str = "path"
    n_starts: int | None = None
    fit_intercept: bool = True
    penalize_intercept: bool = False
    class_weight: Any = None
    multiclass: str = "ovr"
    calibration: str | None = None
    random_state: Any = None
    verbose: int = 0

    def _check_fit(self, X: Any, y: Any, sample_weight: Any) -> Training:
        check_random_state(self.random_state)
        if self.calibration is not None:
            lookup(CALIBRATIONS, self.calibration, "calibration")
        return check_training(self, X, y, sample_weight, self.class_weight)

    def _make_options(self, **more: Any) -> Options:
        return Options(
            self.max_iter, self.tol, bool(self.fit_intercept), bool(self.penalize_intercept),
            **{"multiclass": self.multiclass, "solver": self.solver, "n_starts": self.n_starts} | more,
        )  # fmt: skip

    def _fit_setting(
        self, training: Training, problem: Problem, options: Options, *, exact: bool, name: str,
        splits: Splits | None = None,
    ) -> None:  # fmt: skip
        """Fit one setting on all rows, set the fitted attributes, and warn if the fit has no certificate.

        ``exact`` requests an exact intercept; ``splits`` contains the folds used for calibration.
        """
        models = fit_models(training, [problem], options)
        coef, intercept, kind = models.coef[0], models.intercept[0], training.X.dtype
        if exact:
            intercept = exact_intercepts(training, models.coef, options)[0]
        self.classes_, self.coef_, self.intercept_ = training.classes, coef.astype(kind), intercept.astype(kind)
        self.n_iter_, self.gap_, self.converged_ = models.n_iter[0], models.gap[0], bool(models.converged[0].all())
        self.k_ = get_aggregate(problem.aggregate).counts(problem.k, problem.m, float(training.mass.sum()))[0]
        self.support_ = close_calls(training, coef, intercept, problem, options.multiclass)
        if self.calibration is not None:
            self.calibrators_ = calibrate(
                self.calibration, training, problem, options,
                exact=exact, random_state=self.random_state, splits=splits,
            )  # fmt: skip
        warn_of_fit(name, problem, models, options, training, self.support_)
