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
from .blocks import Frame, Survey, joined
from .fit import Fitted, Manner, fit_passes, make_frame, select_by, total_mass
from .passes import Passes, PassEvent, Source, is_collection

#: Entries of X up to which a fit gathers them and is the in-memory fit.
MAX_GATHERED = 1 << 24
#: What a fitted model in memory says of itself.
TAKEN = ("classes_", "coef_", "intercept_", "gap_", "converged_", "k_", "n_features_in_")


class OverPartitions(LinearClassifier):
    """Fits one (loss, aggregate, k, alpha) over partitions."""

    loss: str
    aggregate: str
    k: Count
    m: Count
    alpha: float
    max_iter: int
    tol: float
    fit_intercept: bool
    penalize_intercept: bool
    class_weight: Any
    multiclass: str
    max_gathered: int
    client: Any
    callback: Callable[[PassEvent], None] | None
    local: type[Any]
    taken: tuple[str, ...] = TAKEN

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the classifier where the partitions are.

        Parameters
        ----------
        X : Dask array or data frame (samples, features)
            Dense; not scaled here.
        y : Dask array or series (samples,)
        sample_weight : Dask array or series (samples,), optional
            Masses: weight 2 is equivalent to two copies, weight 0 to leaving the row out.

        Returns
        -------
        self
        """
        if not is_collection(X):
            raise TypeError(
                f"X is a {type(X).__name__}, not a Dask collection; {self.local.__name__} fits it in memory"
            )
        from .dask_source import DaskSource  # late: a table in files needs no Dask

        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        source = DaskSource(X, y, sample_weight, client=self.client)
        try:
            self.fit_source(source)
        finally:
            source.close()
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def fit_source(self, source: Source) -> Any:
        """Fit to any source of partitions, such as :class:`closecall.cluster.ParquetSource`; returns self."""
        self._check()
        passes = Passes(source, self.callback)
        survey = passes.survey()
        if survey.rows * survey.features <= self.max_gathered:
            return self._in_memory(passes)
        classes = np.array(sorted(survey.labels))
        if len(classes) > 2 and self.multiclass != "ovr":
            raise ValueError(
                f"multiclass={self.multiclass!r} with {len(classes)} classes can only be fitted in one place: use "
                "multiclass='ovr', or raise max_gathered to at least the entries of X"
            )
        free = bool(self.fit_intercept) and not self.penalize_intercept
        frame = make_frame(survey, classes, self.class_weight, intercept=bool(self.fit_intercept), centred=free)
        labels = [classes[1]] if len(classes) == 2 else list(classes)
        self.classes_, self.n_features_in_ = classes, survey.features
        self._in_passes(passes, survey, frame, labels)
        self.n_passes_ = passes.number
        return self

    def _check(self) -> None:
        """Check the parameters before reading the data."""
        lookup(MULTICLASS, self.multiclass, "multiclass")
        Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)

    @property
    def _manner(self) -> Manner:
        return Manner(self.max_iter, self.tol, bool(self.fit_intercept), bool(self.penalize_intercept))

    def _in_passes(self, passes: Passes, survey: Survey, frame: Frame, labels: list[Any]) -> None:
        warn_of_one(self.aggregate, self.k, depth=5)
        problem = Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)
        found = fit_passes(passes, survey, frame, problem, labels, self._manner)
        self._keep(found, survey, frame, problem, passes.number)

    def _keep(self, found: Fitted, survey: Survey, frame: Frame, problem: Problem, passes: int) -> None:
        kind, total = np.dtype(survey.kind), total_mass(survey, frame)
        self.coef_, self.intercept_ = found.coef.astype(kind), found.intercept.astype(kind)
        self.gap_, self.converged_ = found.gap, bool((found.gap <= self.tol).all())
        self.k_ = get_aggregate(problem.aggregate).counts(problem.k, problem.m, total)[0]
        self._warn(found, problem, select_by(problem, total).convex, passes)

    def _warn(self, found: Fitted, problem: Problem, convex: bool, passes: int) -> None:
        models = Models(found.coef[None], found.intercept[None], np.full((1, 1), passes), found.gap[None],
                        (found.gap <= self.tol)[None])  # fmt: skip
        options = Options(self.max_iter, self.tol, True, False, self.multiclass)
        warn_unsettled(type(self).__name__, problem, models, options, convex, depth=7)

    def _in_memory(self, passes: Passes) -> Any:
        """The same classifier in memory, on all rows."""
        rows = joined(passes.gather())
        inner = self.to_local().fit(rows.X, rows.y, rows.mass)
        for name in self.taken:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        self.n_passes_ = passes.number
        return self

    def to_local(self) -> Any:
        """The in-memory classifier with the same parameters, fitted if this one is."""
        own = self.local().get_params()
        model = self.local(**{name: value for name, value in self.get_params().items() if name in own})
        for name in (*self.taken, "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model

    def decision_function(self, X: Any) -> Any:
        """Scores, as in memory; a Dask array for a Dask collection."""
        check_is_fitted(self, "coef_")
        return self.each(X, "decision_function", np.float64, len(self.classes_) > 2)

    def predict(self, X: Any) -> Any:
        """Class labels (samples,); a Dask array for a Dask collection."""
        check_is_fitted(self, "coef_")
        return self.each(X, "predict", self.classes_.dtype, False)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Probabilities (samples, classes), as in memory; a Dask array for a Dask collection."""
        check_is_fitted(self, "coef_")
        return self.each(X, "predict_proba", np.float64, True)

    def each(self, X: Any, method: str, kind: Any, wide: bool) -> Any:
        """A method of the model in memory, on X or on every partition of it."""
        if not is_collection(X):
            return getattr(LinearClassifier, method)(self, X)
        how: dict[str, Any] = {"model": self.to_local(), "method": method}
        how["meta"] = np.empty((0, len(self.classes_)) if wide else 0, kind)
        if not hasattr(X, "rechunk"):
            return X.map_partitions(_call, none=how["meta"], **how)
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        shape = {"chunks": (X.chunks[0], (len(self.classes_),))} if wide else {"drop_axis": 1}
        return X.map_blocks(_call, none=how["meta"], dtype=kind, **how, **shape)


def _call(X: Any, model: Any, method: str, none: Array) -> Array:
    """Call a method of a fitted model on one partition; an empty partition gives ``none``."""
    return np.asarray(getattr(model, method)(X)) if len(X) else none


class DaskAggregateLossClassifier(OverPartitions):
    """:class:`closecall.AggregateLossClassifier` on Dask collections.

    A table of at most ``max_gathered`` entries is gathered and fitted in memory: the same model, bit for bit. A larger
    one is fitted in passes over its partitions by the in-memory solvers, which evaluate all rows: ``average`` of a
    convex
    loss, ``close_decay``, ``close``, ``atk`` and ``maximal``. ``top``, ``ranked_range``, ``trimmed``, averages of the
    hinge, ramp and focal losses and classes learnt jointly need all rows in one place and are rejected beyond that
    size.

    Parameters
    ----------
    loss, aggregate, k, alpha, m, max_iter, tol, fit_intercept, penalize_intercept, class_weight, multiclass
        As in :class:`closecall.AggregateLossClassifier`.
    max_gathered : int
        The largest number of entries in X for which the rows are gathered in one place.
    client : distributed.Client, optional
        The current one by default.
    callback : callable, optional
        Receives a :class:`closecall.cluster.PassEvent` for every partition of every pass.

    Attributes
    ----------
    coef_, intercept_, classes_, gap_, converged_, k_, n_features_in_, feature_names_in_
        As in :class:`closecall.AggregateLossClassifier`.
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
    """:class:`closecall.CloseKClassifier` on Dask collections; see :class:`DaskAggregateLossClassifier`.

    Parameters
    ----------
    k, alpha, loss, max_iter, tol, fit_intercept, penalize_intercept, class_weight, multiclass
        As in :class:`closecall.CloseKClassifier`.
    max_gathered, client, callback
        As in :class:`DaskAggregateLossClassifier`.

    Attributes
    ----------
    coef_, intercept_, classes_, gap_, converged_, k_, n_passes_, n_features_in_, feature_names_in_
        As in :class:`DaskAggregateLossClassifier`.
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
