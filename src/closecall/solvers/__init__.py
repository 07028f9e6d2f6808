"""Solvers: a slow reference solver and a fast solver for batches of problems."""

from .batched import Solutions, solve
from .sweep import Progress

__all__ = ["Progress", "Solutions", "solve"]
