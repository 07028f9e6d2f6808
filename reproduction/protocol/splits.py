"""A data set divided and scaled."""

from __future__ import annotations

from dataclasses import dataclass

from closecall._names import Array

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Division:
    """A data set divided and ready to be solved: three matrices and three vectors of labels in {-1, +1}.

    ``rows`` are the positions of the examples in the data set, part by part, if nothing was added to it.
    """

    X: tuple[Array, ...]
    y: tuple[Array, ...]
    notes: tuple[str, ...] = ()
    rows: tuple[Array, ...] = ()

    @property
    def sizes(self) -> tuple[int, int, int]:
        train, validation, test = (len(y) for y in self.y)
        return train, validation, test
