"""Solvers: the slow, obvious one and the batched one."""

from .batched import Progress, Solutions, solve

__all__ = ["Progress", "Solutions", "solve"]
