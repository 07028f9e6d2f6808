"""What every fitted linear classifier can do, whatever fitted it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from .._names import Array
from ..aggregates import check_mass
from ..theory import minimum_errors
from .calibration import probabilities
from .fitting import scores_of
from .persistence import load_model, save_model


@dataclass(frozen=True)
class OptimalityGap:
    """Training errors against what is proven about any linear classifier.

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


def is_calibrated(estimator: Any) -> bool:
    if getattr(estimator, "calibration", None) is None:
        raise AttributeError(
            f"{type(estimator).__name__} minimises errors and has no probabilities of its own; set "
            "calibration='sigmoid' or 'isotonic' for out-of-fold calibrated ones, or use decision_function"
        )
    return True


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
        """Scores: above 0 means ``classes_[1]`` (two classes), the largest wins (more).

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
            raise ValueError("scores of some rows of X are not finite; scale the features as in training")
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """Class labels (samples,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[codes]

    @available_if(is_calibrated)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities (samples, classes); only with ``calibration=``.

        The calibration was fitted on out-of-fold scores. It may put a probability above one half on the class that
        ``predict`` rejects: close-k places its boundary for few errors, not where the probability is one half.
        """
        scores = self.decision_function(X)
        return probabilities(self.calibrators_, scores if scores.ndim == 2 else scores[:, None])

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
        """Errors on (X, y) against a proven lower bound over all linear classifiers; two classes, small problems.

        Parameters
        ----------
        X : array or sparse matrix (samples, features)
        y : array (samples,)
        sample_weight : array (samples,), optional
        time_limit : float
            Seconds after which the bound is what it is.

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

    def to_sklearn(self) -> LogisticRegression | LinearSVC:
        """A plain fitted scikit-learn model with the same predictions, for ONNX, PMML and the like.

        LogisticRegression for the logistic loss, LinearSVC for all others. The ``predict_proba`` of the former is not
        calibrated unless the aggregate was ``average``.

        Examples
        --------
        >>> from closecall import CloseKClassifier
        >>> model = CloseKClassifier(k=2).fit([[-2.0], [-1.0], [1.0], [2.0]], ["no", "no", "yes", "yes"])
        >>> model.to_sklearn().predict([[0.5]]).tolist()
        ['yes']
        """
        check_is_fitted(self, "coef_")
        loss = getattr(self, "loss_", getattr(self, "loss", ""))
        plain = {"logistic": LogisticRegression}.get(loss, LinearSVC)()
        for name in ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(plain, name, getattr(self, name))
        plain.n_iter_ = np.atleast_1d(getattr(self, "n_iter_", 1))
        return plain

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file, without pickle; see :func:`closecall.linear.load_model`."""
        check_is_fitted(self, "coef_")
        save_model(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Any:
        """Read a model that ``save`` wrote; a file of another class, damaged or tampered with raises ``ValueError``."""
        return load_model(path, expected=cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _norms(vectors: Array) -> Array:
    """Euclidean norms over the last axis; scaled first, because squares leave the float range long before norms do."""
    vectors = np.asarray(vectors, dtype=np.float64)
    sizes = np.abs(vectors).max(axis=-1, initial=0.0)
    scaled = vectors / np.where(sizes > 0, sizes, 1)[..., None]
    return np.asarray(sizes * np.linalg.norm(scaled, axis=-1))


def _ratio(values: Array, norms: Array) -> Array:
    far = np.copysign(np.inf, values)
    with np.errstate(over="ignore"):  # a distance beyond the largest float is infinite
        return np.where(norms > 0, values / np.where(norms > 0, norms, 1), far)
