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
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from .._names import Array
from ..aggregates import AGGREGATES, check_mass
from ..losses import LOSSES
from ..theory import minimum_errors
from .calibration import probabilities
from .fitting import scores_of
from .persistence import load_model, save_model


@dataclass(frozen=True)
class OptimalityGap:
    """Training errors compared with a proven bound for all linear classifiers.

    Parameters
    ----------
    errors : float
        The misclassified mass of this classifier.
    lower_bound : float
        No linear classifier misclassifies less.
    gap : float
        The difference.
    proven : bool
        Whether a classifier with ``lower_bound`` errors is known to exist.
    """

    errors: float
    lower_bound: float
    gap: float
    proven: bool


def own_form(model: Any) -> str | None:
    """The form of a logistic regression: separate scores ("ovr") or a softmax; None for all other models.

    A search is judged by the model it chose. Two classes have one score.

    Examples
    --------
    >>> from closecall import AggregateLossClassifier, CloseKClassifier
    >>> own_form(AggregateLossClassifier()), own_form(CloseKClassifier())
    ('ovr', None)
    """
    names = ("loss", "aggregate", "exact_intercept")
    searches = hasattr(model, "alphas")
    fitted = getattr(model, "best_params_", {}) if searches else {name: getattr(model, name, None) for name in names}
    loss, aggregate, moved = (fitted.get(name) for name in names)
    if moved or loss not in LOSSES or aggregate not in AGGREGATES:
        return None
    form = getattr(model, "multiclass_", model.multiclass)
    if len(getattr(model, "classes_", ())) == 2:
        form = "ovr"
    regression = LOSSES[loss].likelihood and AGGREGATES[aggregate].plain
    return form if regression and form in ("ovr", "softmax") else None


def has_probabilities(estimator: Any) -> bool:
    """True if the model is calibrated or is logistic regression; otherwise an error says what to do."""
    if getattr(estimator, "calibration", None) is None and own_form(estimator) is None:
        raise AttributeError(
            f"this {type(estimator).__name__} is not logistic regression and has no probabilities of its own; set "
            "calibration='sigmoid' or 'isotonic' for out-of-fold calibrated ones, or use decision_function"
        )
    return True


def calibrators_of(model: Any) -> list[Array] | None:
    """The calibrators of a fitted model: one array for each score, None for a softmax."""
    if getattr(model, "calibration", None) is not None:
        return model.calibrators_
    return None if own_form(model) == "softmax" else [np.array([1.0, 0.0])] * len(model.intercept_)


class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Methods of a classifier with ``coef_``, ``intercept_`` and ``classes_``."""

    coef_: Array
    intercept_: Array
    classes_: Array
    calibrators_: list[Array]

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self, "coef_")
        with np.errstate(over="ignore", invalid="ignore"):  # the sum by which it looks for NaN may overflow
            return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def decision_function(self, X: Any) -> Array:
        """Scores: positive for ``classes_[1]`` with two classes; with more, the largest score wins.

        Parameters
        ----------
        X : array or sparse matrix (samples, features)

        Returns
        -------
        scores : array (samples,) for two classes, else (samples, classes)
        """
        with np.errstate(over="ignore", invalid="ignore"):
            scores = scores_of(self._checked(X), self.coef_, self.intercept_)
        if not np.isfinite(scores).all():
            raise ValueError("some rows of X have scores that are not finite; scale the features as in training")
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """Class labels (samples,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[codes]

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Probabilities (samples, classes): calibrated with ``calibration=``, otherwise only for logistic regression.

        The average of the logistic loss is logistic regression, and so is a search that chose it; one-vs-rest
        probabilities are normalised as in scikit-learn's OneVsRestClassifier. All other models need a calibration,
        which is fitted on out-of-fold scores. It may give the class that ``predict`` rejects a probability above one
        half: close-k places its boundary to make few errors, not where the probability is one half.
        """
        scores = self.decision_function(X)
        return probabilities(calibrators_of(self), scores if scores.ndim == 2 else scores[:, None])

    def boundary_distance(self, X: Any) -> Array:
        """Euclidean distance to the decision boundary (samples,).

        Signed for two classes (positive on the side of ``classes_[1]``); for more, the distance to the nearest point
        at which another class would be predicted. Infinite if all coefficients are zero.

        Examples
        --------
        >>> from closecall import AggregateLossClassifier
        >>> X, y = np.array([[-1.0, 0.0], [-2.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), [0, 0, 1, 1]
        >>> AggregateLossClassifier().fit(X, y).boundary_distance([[3.0, 5.0]]).round(3).tolist()
        [3.0]
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return _ratio(scores, _norms(self.coef_[0]))
        samples, winners = np.arange(len(scores)), scores.argmax(axis=1)
        with np.errstate(over="ignore"):
            lead = scores[samples, winners][:, None] - scores
        apart = _norms(self.coef_[:, None] - self.coef_[None])[winners]
        distances = _ratio(lead, apart)
        distances[samples, winners] = np.inf
        return distances.min(axis=1)

    def optimality_gap(self, X: Any, y: Any, sample_weight: Any = None, *, time_limit: float = 60.0) -> OptimalityGap:
        """Errors on (X, y) and a proven lower bound over all linear classifiers; for two classes and small problems.

        Parameters
        ----------
        X : array or sparse matrix (samples, features)
        y : array (samples,)
        sample_weight : array (samples,), optional
        time_limit : float
            Seconds after which the bound reached so far is returned.

        Returns
        -------
        OptimalityGap

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
            raise ValueError(f"y contains labels the model does not know: {strange[:5].tolist()}")
        mass = np.ones(len(y)) if sample_weight is None else check_mass(sample_weight, len(y))
        labels = np.where(y == self.classes_[1], 1, -1)
        best = minimum_errors(self._checked(X), labels, mass, time_limit=time_limit, start=self.coef_)
        errors = float(mass[predicted != y].sum())
        return OptimalityGap(errors, best.lower_bound, max(errors - best.lower_bound, 0.0), best.proven)

    def to_sklearn(self) -> LogisticRegression | OneVsRestClassifier | LinearSVC:
        """A plain fitted scikit-learn model with the same predictions, for ONNX, PMML and the like.

        A model that is logistic regression becomes a LogisticRegression, or a OneVsRestClassifier of them for
        one-vs-rest. All others become a LinearSVC, which has no ``predict_proba``; a calibration is dropped.

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
        """A scikit-learn model with these attributes and those that all models have."""
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                fitted[name] = getattr(self, name)
        vars(plain).update(fitted, n_iter_=np.atleast_1d(getattr(self, "n_iter_", 1)))
        return plain

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file, without pickle; see :func:`closecall.linear.load_model`."""
        check_is_fitted(self, "coef_")
        save_model(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Any:
        """Read a model written by ``save``; a damaged, altered or foreign file raises ``ValueError``."""
        return load_model(path, expected=cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _norms(vectors: Array) -> Array:
    """Euclidean norms over the last axis; scaled first, because squares overflow long before norms do."""
    vectors = np.asarray(vectors, dtype=np.float64)
    sizes = np.abs(vectors).max(axis=-1, initial=0.0)
    scaled = vectors / np.where(sizes > 0, sizes, 1)[..., None]
    return np.asarray(sizes * np.linalg.norm(scaled, axis=-1))


def _ratio(values: Array, norms: Array) -> Array:
    far = np.copysign(np.inf, values)
    with np.errstate(over="ignore"):  # a distance beyond the largest float is infinite
        return np.where(norms > 0, values / np.where(norms > 0, norms, 1), far)
