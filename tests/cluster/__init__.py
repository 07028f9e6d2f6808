"""Fitting over partitions: closecall.cluster."""
