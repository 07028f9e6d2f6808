"""Solvers: the slow, obvious one and the batched one."""

from .batched import Solutions, solve
from .sweep import Progress

__all__ = ["Progress", "Solutions", "solve"]
