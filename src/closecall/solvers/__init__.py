"""Solvers: a slow reference solver and the batched solver."""

from .batched import Solutions, solve
from .sweep import Progress

__all__ = ["Progress", "Solutions", "solve"]
