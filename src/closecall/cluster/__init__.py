"""Fit classifiers to distributed or streamed data, on a Dask cluster or from Parquet files."""

from .classifier import DaskAggregateLossClassifier, DaskCloseKClassifier
from .parquet_source import ParquetSource
from .passes import ClusterError, PassEvent
from .search import DaskCloseKClassifierCV

__all__ = [
    "ClusterError",
    "DaskAggregateLossClassifier",
    "DaskCloseKClassifier",
    "DaskCloseKClassifierCV",
    "ParquetSource",
    "PassEvent",
]
