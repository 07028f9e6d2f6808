"""Loaded by a Dask worker of the soak before it begins: it then has another version of closecall."""

import closecall

closecall.__version__ = "0.0.1"
