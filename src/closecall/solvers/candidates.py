"""Certified candidates: when k is small, a step costs by the examples near the boundary, not by n.

After a full pass at parameters c0 the examples are known whose margin lies outside ``[low, high]`` by more than
``||z|| * radius``. While ``||c - c0|| <= radius`` their margins cannot enter ``[low, high]`` (Cauchy-Schwarz), so as
long as the k closest of the *others* lie inside it, they are the k closest of all. When the certificate runs out, a
full pass renews it. The selection is exact, not a heuristic.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._names import Array
from .design import Design
from .kernels import Mass, closeness, select

#: Below this many examples a full pass is cheap, above this share of them a candidate set is no help.
FROM_SAMPLES = 50_000
LARGEST_SHARE = 0.125
_SLACK = 1e-4  # float32 margins of a gathered row may differ in the last bits from those of a full pass


def _logistic_region(edge: float) -> tuple[float, float]:
    """Margins whose key max(2p, 1/(2p)) is at most ``edge``: the inverse of the kernel's key on both sides."""
    high = -np.log(2 / edge - 1) if edge < 2 else np.inf
    return -float(np.log(2 * edge - 1)), float(high)


def _hinge_region(edge: float) -> tuple[float, float]:
    return -edge, edge if edge < 1 else np.inf


REGIONS: dict[str, Callable[[float], tuple[float, float]]] = {"logistic": _logistic_region, "hinge": _hinge_region}


class Scout:
    """Gradients of one close problem by candidates; full passes only when the certificate runs out.

    Parameters
    ----------
    design : Design
        Dense.
    loss : str
        A loss in :data:`REGIONS`.
    mass : Mass
    norms : array (samples,)
        Norms of the design's rows.
    """

    def __init__(self, design: Design, loss: str, mass: Mass, norms: Array) -> None:
        self.design, self.mass, self.norms = design, mass, norms
        self.key, self.finish = closeness(loss)
        self.region = REGIONS[loss]
        self.radius, self.reach, self.full_passes = 0.0, 8.0, 0
        self.center: Array | None = None
        self.rows: Array | None = None
        self.last: Array | None = None

    def gradient(self, c: Array, k: float) -> Array:
        """Gradient (coordinates,) of the close-k loss at coordinates c."""
        found = self._from_candidates(c, k)
        if found is None:
            found = self._from_all(c, k)
        self.last = c.copy()
        return found

    def _from_candidates(self, c: Array, k: float) -> Array | None:
        if self.center is None or self.rows is None:
            return None
        if float(np.linalg.norm(c - self.center)) > self.radius:
            self.reach = min(self.reach * 1.5, 64.0)  # the certificate ran out by distance: look further next time
            return None
        gradient, edge, _ = self._evaluate(self.rows, c, k, self.chosen_mass)
        low, high = self.region(edge)
        inside = low >= self.low * (1 - _SLACK) and high <= self.high * (1 - _SLACK)
        return gradient if inside else None

    def _from_all(self, c: Array, k: float) -> Array:
        self.full_passes += 1
        self.center = self.rows = None  # the old candidates make room first
        gradient, edge, margins = self._evaluate(self.design.signed, c, k, self.mass)
        low, high = self.region(edge)
        if not np.isfinite(high) or self.last is None:
            return gradient
        self.low, self.high = 2 * low, 2 * high
        radius = self.reach * max(float(np.linalg.norm(c - self.last)), 1e-12)
        slack = self.norms * np.float32(radius)
        near = np.flatnonzero((margins >= self.low - slack) & (margins <= self.high + slack))
        if len(near) > LARGEST_SHARE * len(margins) or self.mass.values[near].sum() < k:
            self.reach = max(self.reach / 2, 1.0)
            return gradient
        outside = None if self.mass.outside is None else self.mass.outside[near]
        self.chosen_mass = Mass(self.mass.values[near], self.mass.unit, outside, self.mass.total)
        self.rows, self.radius, self.center = self.design.signed[near], radius, c.copy()
        return gradient

    def _evaluate(self, rows: Array, c: Array, k: float, mass: Mass) -> tuple[Array, float, Array]:
        negative = (rows @ c.astype(rows.dtype))[None]
        margins = -negative[0]
        keys, raw = self.key(negative)
        weights = select(keys, np.array([k]), mass)
        chosen = np.flatnonzero(weights[0])
        pull = self.finish(raw[0, chosen]) * weights[0, chosen]
        return (pull @ rows[chosen]).astype(np.float64), float(keys[0, chosen].max()), margins


def make_scout(design: Design, loss: str, mass: Mass, k: float, cache: dict[str, Array]) -> Scout | None:
    """A scout where one pays: many examples, few of them close, a loss whose regions are known, dense rows."""
    if design.samples < FROM_SAMPLES or k > LARGEST_SHARE / 2 * mass.total or loss not in REGIONS:
        return None
    if not isinstance(design.signed, np.ndarray):
        return None
    if "norms" not in cache:
        cache["norms"] = np.sqrt(np.einsum("ij,ij->i", design.signed, design.signed))
    return Scout(design, loss, mass, cache["norms"])
