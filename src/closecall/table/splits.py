"""Split rows into training, validation and test parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closecall._names import Array

#: Relative sizes of the training, validation and test parts.
SHARES = (50, 25, 25)


def shares(count: int, sizes: Sequence[int] = SHARES) -> list[int]:
    """Divide ``count`` among parts in proportion to their sizes, using the largest remainder method.

    Examples
    --------
    >>> shares(8), shares(1, [50, 25, 25])
    ([4, 2, 2], [1, 0, 0])
    """
    if count < 0 or sum(sizes) <= 0:
        raise ValueError(f"shares needs a count >= 0 and parts with rows; got {count} and {list(sizes)}")
    exact = [count * size / sum(sizes) for size in sizes]
    whole = [int(part) for part in exact]
    order = sorted(range(len(sizes)), key=lambda i: whole[i] - exact[i])
    for i in order[: count - sum(whole)]:
        whole[i] += 1
    return whole


def shuffled(rows: Array, rng: np.random.Generator) -> list[Array]:
    """Return the given rows in random order, divided into the three parts."""
    train, validation, _ = shares(len(rows))
    return np.split(rng.permutation(rows), [train, train + validation])


def stratified(labels: Array, rng: np.random.Generator) -> list[Array]:
    """Return the rows of the three parts, sorted and stratified by class; a class's only row is used for training.

    Examples
    --------
    >>> [len(part) for part in stratified(np.repeat([0, 1, 2], [8, 4, 4]), np.random.default_rng(0))]
    [8, 4, 4]
    """
    classes = [shuffled(np.flatnonzero(labels == label), rng) for label in np.unique(labels)]
    return [np.sort(np.concatenate(part)) for part in zip(*classes, strict=True)]
