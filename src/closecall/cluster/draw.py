"""The second pass: samples by the hashes of the rows, and sums that do not depend on a solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array, spread_out
from ..linear.training import row_hashes
from .blocks import Block, Frame, joined


@dataclass
class Draw:
    """A sample of a partition, and sums over all of its rows: of ``z z'``, and of ``-y * z`` for each label.

    Parameters
    ----------
    block : Block
        Masses are scaled up by what each row represents.
    first : Block
        Roughly the rows with the smallest hashes, unchanged.
    gram : array (coordinates, coordinates)
    pulls : array (labels, coordinates)
    """

    block: Block
    first: Block
    gram: Array
    pulls: Array

    @classmethod
    def together(cls, found: Sequence[Draw]) -> Draw:
        """Combine the draws of all partitions; rows are concatenated once."""
        gram, pulls = (np.sum([getattr(each, name) for each in found], axis=0) for name in ("gram", "pulls"))
        return cls(joined([each.block for each in found]), joined([each.first for each in found]), gram, pulls)


def draw(frame: Frame, shares: dict[Any, float], first: float, labels: Sequence[Any], block: Block) -> Draw:
    """Sample rows by the share of each label, the share ``first`` with the smallest hashes, and compute the sums."""
    limits = np.ones(len(block))
    for label, share in shares.items():
        limits[block.y == label] = share
    hashes = row_hashes(block.X)
    chosen = np.flatnonzero(spread_out(hashes) < limits)
    least = np.flatnonzero(hashes.astype(np.float64) * 2.0**-64 < first)
    size = len(frame.mean) + frame.intercept
    found = Draw(Block(block.X[chosen], block.y[chosen], block.mass[chosen] / limits[chosen]),
                 Block(block.X[least], block.y[least], block.mass[least]),
                 np.zeros((size, size)), np.zeros((len(labels), size)))  # fmt: skip
    for piece in block.pieces():
        y, mass = block.y[piece], frame.masses(block.y[piece], block.mass[piece])
        rows = frame.rows(block.X[piece], -np.ones(len(y)))
        for number, label in enumerate(labels):
            found.pulls[number] += np.where(y == label, -mass, mass) @ rows
        rows *= np.sqrt(mass)[:, None]
        found.gram += rows.T @ rows  # of one array with itself: half the work
    return found
