"""Classifiers for Dask collections, named in the style of LightGBM and XGBoost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._names import Array, keep, lookup
from ..aggregates import Count, get_aggregate, warn_of_one
from ..linear import AggregateLossClassifier, CloseKClassifier
from ..linear.base import LinearClassifier, has_probabilities
from ..linear.fitting import MULTICLASS, Models, Options, warn_unsettled
from ..objective import Problem
from .fit import fit_passes, make_frame, select_by, total_mass
from .passes import Frame, Passes, PassEvent, Source, Survey, is_collection, joined

#: If X has at most this many entries (128 MiB), a fit gathers the rows and fits them in memory.
MAX_GATHERED = 1 << 24


class OverPartitions(LinearClassifier):
    """The base class of the classifiers below, which fit a model with fixed hyperparameters to partitioned data."""

    local: type[Any]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the classifier without moving the partitions.

        Parameters
        ----------
        X : Dask array or data frame (samples, features)
            Dense. The columns are not scaled.
        y : Dask array or series (samples,)
        sample_weight : Dask array or series (samples,), optional
            A weight of 2 is equivalent to two copies of a row, and a weight of 0 to omitting the row.

        Returns
        -------
        self
        """
        if not is_collection(X):
            raise TypeError(
                f"X is a {type(X).__name__}, not a Dask collection; use {self.local.__name__} to fit it in memory"
            )
        from .dask_source import DaskSource  # imported here because fitting files needs no Dask

        source = DaskSource(X, y, sample_weight, client=self.client)
        try:
            self.fit_source(source)
        finally:
            source.close()
        names = list(getattr(X, "columns", []))
        if names and all(isinstance(name, str) for name in names):  # as in scikit-learn
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def fit_source(self, source: Source) -> Any:
        """Fit to partitions from any source, such as a :class:`closecall.cluster.ParquetSource`, and return self."""
        self._check()
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        passes = Passes(source, self.callback)
        survey = passes.survey()
        if survey.rows * survey.features <= self.max_gathered:
            rows = joined(passes.gather())
            _copy_fitted(self.to_local().fit(rows.X, rows.y, rows.mass), self)
            self.n_passes_ = passes.number
            return self
        classes = np.array(sorted(survey.labels))
        if len(classes) > 2 and self.multiclass != "ovr":
            raise ValueError(
                f"multiclass={self.multiclass!r} with {len(classes)} classes needs all rows in one place: use "
                "multiclass='ovr', or raise max_gathered to at least the size of X"
            )
        free = bool(self.fit_intercept) and not self.penalize_intercept
        frame = make_frame(survey, classes, self.class_weight, intercept=bool(self.fit_intercept), centred=free)
        labels = [classes[1]] if len(classes) == 2 else list(classes)
        self.classes_, self.n_features_in_ = classes, survey.features
        self._in_passes(passes, survey, frame, labels)
        self.n_passes_ = passes.number
        return self

    def _check(self) -> None:
        """Check the parameters before any data are read."""
        lookup(MULTICLASS, self.multiclass, "multiclass")
        Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)

    @property
    def _options(self) -> Options:
        intercept = bool(self.fit_intercept), bool(self.penalize_intercept)
        return Options(self.max_iter, self.tol, *intercept, self.multiclass)

    def _in_passes(self, passes: Passes, survey: Survey, frame: Frame, labels: list[Any]) -> None:
        warn_of_one(self.aggregate, self.k, depth=5)
        problem = Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)
        models = fit_passes(passes, survey, frame, problem, labels, self._options)
        self._keep(models, survey, frame, problem)

    def _keep(self, models: Models, survey: Survey, frame: Frame, problem: Problem) -> None:
        """Store the models for one problem as fitted attributes, and warn if they have not converged."""
        kind, total = np.dtype(survey.kind), total_mass(survey, frame)
        self.coef_, self.intercept_ = models.coef[0].astype(kind), models.intercept[0].astype(kind)
        self.gap_, self.converged_ = models.gap[0], bool(models.converged.all())
        self.k_ = get_aggregate(problem.aggregate).counts(problem.k, problem.m, total)[0]
        convex = select_by(problem, total).convex
        warn_unsettled(type(self).__name__, problem, models, self._options, convex, depth=6)

    def to_local(self) -> Any:
        """Return the in-memory classifier with the same parameters, fitted if this one is."""
        own = self.local().get_params()
        model = self.local(**{name: value for name, value in self.get_params().items() if name in own})
        _copy_fitted(self, model)
        return model

    def decision_function(self, X: Any) -> Any:
        """Return the same scores as the in-memory classifier, as a Dask array if X is a Dask collection."""
        return self._each(X, "decision_function")

    def predict(self, X: Any) -> Any:
        """Return the class labels (samples,), as a Dask array if X is a Dask collection."""
        return self._each(X, "predict")

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities (samples, classes), as a Dask array if X is a Dask collection."""
        return self._each(X, "predict_proba")

    def _each(self, X: Any, method: str) -> Any:
        """Call a method of the in-memory classifier on X, or on every partition of a Dask collection."""
        check_is_fitted(self, "coef_")
        if not is_collection(X):
            return getattr(LinearClassifier, method)(self, X)
        wide = method == "predict_proba" or (method == "decision_function" and len(self.classes_) > 2)
        kind = self.classes_.dtype if method == "predict" else np.float64
        empty = np.empty((0, len(self.classes_)) if wide else 0, kind)
        how: dict[str, Any] = {"model": self.to_local(), "method": method, "empty": empty, "meta": empty}
        if not hasattr(X, "rechunk"):
            return X.map_partitions(_call, **how)
        X = X.rechunk({1: -1})
        shape = {"chunks": (X.chunks[0], (len(self.classes_),))} if wide else {"drop_axis": 1}
        return X.map_blocks(_call, dtype=kind, **how, **shape)


def _call(X: Any, model: Any, method: str, empty: Array) -> Array:
    """Call a method of a fitted model on one partition, which may be empty."""
    return np.asarray(getattr(model, method)(X)) if len(X) else empty


def _copy_fitted(model: Any, other: Any) -> None:
    """Copy the fitted attributes, except row numbers and the number of passes, which only one of the models has."""
    for name, value in vars(model).items():
        if name.endswith("_") and name not in ("support_", "n_passes_"):
            setattr(other, name, value)


class DaskAggregateLossClassifier(OverPartitions):
    """An :class:`closecall.AggregateLossClassifier` for Dask collections.

    If a table has at most ``max_gathered`` entries, its rows are gathered and fitted in memory, which gives exactly the
    same model as :class:`closecall.AggregateLossClassifier`. For a larger table, the model is fitted in passes over the
    partitions. This is supported for ``close_decay``, ``close``, ``atk``, ``maximal``, and the ``average`` of a smooth
    convex loss. All other settings (``top``, ``ranked_range``, ``trimmed``, the ``average`` of the hinge, ramp or focal
    loss, and joint training of all classes) need all rows in one place and raise an error for larger tables.

    Parameters
    ----------
    loss, aggregate, k, alpha, m, max_iter, tol, fit_intercept, penalize_intercept, class_weight, multiclass
        The same as in :class:`closecall.AggregateLossClassifier`.
    max_gathered : int
        The largest number of entries in X for which the rows are gathered in one place.
    client : distributed.Client, optional
        By default, the current client.
    callback : callable, optional
        A function that receives a :class:`closecall.cluster.PassEvent` for every partition in every pass.

    Attributes
    ----------
    coef_, intercept_, classes_, gap_, converged_, k_, n_features_in_, feature_names_in_
        The same as in :class:`closecall.AggregateLossClassifier`.
    n_passes_ : int
        The number of passes over the data.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> client = Client(processes=False, dashboard_address="127.0.0.1:0")
    >>> model = DaskAggregateLossClassifier().fit(da.from_array(X, chunks=2), da.from_array(y, chunks=2))
    >>> client.close()
    >>> model.predict(X).tolist(), model.converged_
    ([0, 0, 1, 1], True)
    """

    local = AggregateLossClassifier

    def __init__(
        self,
        *,
        loss: str = "logistic",
        aggregate: str = "average",
        k: Count = None,
        m: Count = None,
        alpha: float = 1.0,
        max_iter: int = 1000,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        class_weight: Any = None,
        multiclass: str = "ovr",
        max_gathered: int = MAX_GATHERED,
        client: Any = None,
        callback: Callable[[PassEvent], None] | None = None,
    ) -> None:
        keep(self, locals())


class DaskCloseKClassifier(OverPartitions):
    """A :class:`closecall.CloseKClassifier` for Dask collections.

    The parameters are the same as for :class:`closecall.CloseKClassifier`, plus ``max_gathered``, ``client`` and
    ``callback``. The attributes are the same as for :class:`DaskAggregateLossClassifier`.
    """

    aggregate = "close_decay"
    m = None
    local = CloseKClassifier

    def __init__(
        self,
        *,
        k: Count = 0.1,
        alpha: float = 1.0,
        loss: str = "logistic",
        max_iter: int = 300,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        class_weight: Any = None,
        multiclass: str = "top_two",
        max_gathered: int = MAX_GATHERED,
        client: Any = None,
        callback: Callable[[PassEvent], None] | None = None,
    ) -> None:
        keep(self, locals())
