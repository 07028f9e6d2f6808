"""A training set and its design, for several sweeps over the same rows; a search runs four or five."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .._names import Array
from .design import Design, least_squares_start, make_design, merge_duplicates
from .kernels import Mass, make_mass

NOT_FINITE = "a solution is not finite; scale the features (StandardScaler) or raise alpha"


@dataclass(frozen=True)
class Prepared:
    """The data and designs that all sweeps share."""

    design: Design
    features: int
    _starts: dict[int, Array] = field(default_factory=dict)

    @cached_property
    def masses(self) -> list[Mass]:
        """The folds' masses in the type of the design."""
        return [make_mass(mass, self.design.signed.dtype.type) for mass in self.design.masses]

    def least_squares(self, fold_of: Array) -> Array:
        """The least-squares starts of problems on these folds, (problems, coordinates); computed once per fold."""
        asked = [fold for fold in np.unique(fold_of).tolist() if fold not in self._starts]
        self._starts.update(zip(asked, least_squares_start(self.design, asked), strict=True))
        return np.stack([self._starts[fold] for fold in fold_of.tolist()])


def prepare(X: Any, y: Array, masses: Array, **how: Any) -> Prepared:
    """Prepare data that :func:`closecall.solvers.solve` would accept as they are, with masses (folds, samples)."""
    return design_of(*merge_duplicates(X, y, masses), **how)


def design_of(
    X: Any, y: Array, masses: Array, *, fit_intercept: bool, penalize_intercept: bool, dtype: Any
) -> Prepared:
    """Prepare data whose equal rows are merged already."""
    with np.errstate(all="ignore"):  # non-finite results raise below
        try:
            design = make_design(X, y, masses, fit_intercept=fit_intercept, penalize=penalize_intercept, dtype=dtype)
        except np.linalg.LinAlgError as error:
            raise FloatingPointError(f"{NOT_FINITE} ({error})") from None
    return Prepared(design, int(X.shape[1]))
