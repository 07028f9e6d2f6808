"""Fit classifiers to data that are not in memory: on a Dask cluster, or streamed from Parquet files."""

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
