"""Fitting where the rows are: on Dask, or streamed from Parquet files."""

from .classifier import DaskAggregateLossClassifier, DaskCloseKClassifier
from .dask_source import ClusterError
from .parquet_source import ParquetSource
from .passes import PassEvent

__all__ = ["ClusterError", "DaskAggregateLossClassifier", "DaskCloseKClassifier", "ParquetSource", "PassEvent"]
