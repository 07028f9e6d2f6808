"""Fitting where the rows are: on Dask, or streamed from Parquet files."""

from .classifier import DaskAggregateLossClassifier, DaskCloseKClassifier
from .dask_source import ClusterError
from .parquet_source import ParquetSource
from .passes import PassEvent
from .search import DaskCloseKClassifierCV

__all__ = [
    "ClusterError",
    "DaskAggregateLossClassifier",
    "DaskCloseKClassifier",
    "DaskCloseKClassifierCV",
    "ParquetSource",
    "PassEvent",
]
