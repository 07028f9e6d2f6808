"""Solvers: the slow, obvious one and the batched one."""
