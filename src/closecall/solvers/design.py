"""The design: a training set in coordinates that reduce every step to a division.

The majoriser of a problem's Hessian is ``c * X'X + alpha`` with a number c that depends on the loss and on k. In the
eigenbasis of ``X'X``, the majorisers of all problems are diagonal, so one decomposition suffices for the whole grid. X
is centred if the intercept is free. Centring makes the Gram matrix block diagonal and keeps the intercept out of the
penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsqr

from .._names import Array

#: If there are more rows *and* more columns than this, an eigenbasis costs more than it saves; columns are scaled.
EIGEN_LIMIT = 2048


@dataclass(frozen=True)
class Design:
    """A training set in the coordinates that the steps use."""

    #: (samples, coordinates): the rows ``-y * z``; their products with coordinates are negated margins
    signed: Any
    spectrum: Array  #: (coordinates,): a diagonal that bounds the mass-weighted Gram matrix of the rows
    penalized: Array  #: (coordinates,): 1 where alpha applies, 0 for a free intercept
    masses: Array  #: (folds, samples)
    basis: Array | None  #: (columns, coordinates): coordinates -> coefficients; None if they are the same
    mean: Array | None  #: (features,): the means subtracted from X
    intercept: str  #: "none", "free" or "penalized"
    columns: Array | None = None  #: the columns of X that are not empty, if any are; the others have coefficient 0
    features: int = 0  #: the number of columns of X
    raised: float = 1.0  #: the factor by which the squared norms of the columns were scaled to bound the Gram matrix

    @cached_property
    def across(self) -> Any:
        """The transposed design (coordinates, samples)."""
        return np.ascontiguousarray(self.signed.T) if isinstance(self.signed, np.ndarray) else self.signed.T

    @property
    def samples(self) -> int:
        return int(self.signed.shape[0])

    @property
    def rank(self) -> int:
        return int(self.signed.shape[1])

    @property
    def rounding(self) -> float:
        """The possible relative error of a bound computed in these coordinates."""
        return float(np.finfo(self.signed.dtype).eps)

    def negative_margins(self, coordinates: Array) -> Array:
        """Return the negated margins (problems, samples)."""
        if sparse.issparse(self.signed):
            return np.ascontiguousarray((self.signed @ coordinates.T.astype(self.signed.dtype)).T)
        return np.matmul(coordinates.astype(self.signed.dtype, copy=False), self.across)

    def gradient(self, pull: Array) -> Array:
        """Return sums of the rows (problems, coordinates), weighted by ``pull`` (problems, samples)."""
        if not sparse.issparse(self.signed):
            return pull @ self.signed
        used = np.flatnonzero(pull.any(axis=0)) if len(pull) == 1 else np.arange(pull.shape[1])
        if len(used) < 0.3 * pull.shape[1]:  # few examples have a pull: sum only over them
            return np.asarray((self.signed[used].T @ pull[:, used].T).T)
        return np.asarray((self.across @ pull.T).T)

    def to_parameters(self, coordinates: Array) -> tuple[Array, Array]:
        """Convert coordinates to coefficients (problems, features) and intercepts (problems,)."""
        free, none = self.intercept == "free", self.intercept == "none"
        if self.columns is not None:
            coef = np.zeros((len(coordinates), self.features))
            coef[:, self.columns] = coordinates[:, : len(self.columns)]
            return coef, np.zeros(len(coordinates)) if none else coordinates[:, -1].copy()
        inner = coordinates[:, :-1] if free else coordinates
        columns = inner if self.basis is None else inner @ self.basis.T
        if self.intercept == "penalized":
            return columns[:, :-1], columns[:, -1]
        intercepts = coordinates[:, -1].copy() if free else np.zeros(len(coordinates))
        return columns, intercepts - (columns @ self.mean if self.mean is not None else 0.0)

    def to_coordinates(self, coef: Array, intercept: Array) -> Array:
        """Return the coordinates of given parameters, omitting the directions in which all examples are zero."""
        free = self.intercept == "free"
        coef = coef if self.columns is None else coef[:, self.columns]
        inner = np.column_stack([coef, intercept]) if self.intercept == "penalized" else coef
        inner = inner if self.basis is None else inner @ self.basis
        if not free:
            return inner
        return np.column_stack([inner, intercept + (coef @ self.mean if self.mean is not None else 0.0)])


def make_design(X: Any, y: Array, masses: Array, *, fit_intercept: bool, penalize: bool, dtype: Any) -> Design:
    """Build the design for X (samples, features) with labels y and fold masses (folds, samples)."""
    kind = "none" if not fit_intercept else "penalized" if penalize else "free"
    bound = masses.max(axis=0)  # a Gram matrix weighted by this bounds those of all folds
    if sparse.issparse(X) or min(X.shape) > EIGEN_LIMIT:
        return _scaled_design(X, y, masses, bound, kind, dtype)
    mean = None
    if kind == "free":
        mean = sum(bound[rows] @ X[rows].astype(np.float64) for rows in row_blocks(X.shape)) / bound.sum()
    values, basis = _eigenbasis(X, bound, mean, kind)
    signed = _empty(X.shape[0], len(values) + (kind == "free"), dtype)
    for rows in row_blocks(X.shape):
        block = _columns(X[rows], mean, kind)
        block *= -y[rows, None]
        signed.T[: len(values), rows] = basis.T @ block.T
    if kind == "free":
        signed[:, -1] = -y
        values = np.append(values, bound.sum())
    penalized = np.ones(len(values))
    penalized[len(values) - (kind == "free") :] = 0
    return Design(signed, values, penalized, masses, basis, mean, kind, features=X.shape[1])


def _empty(samples: int, coordinates: int, dtype: Any) -> Array:
    # Products for a few problems are twice as fast if each coordinate is contiguous, and so is gathering if each
    # example is contiguous. Up to 4 million entries, both layouts are kept (see Design.across); otherwise only the
    # first.
    order: Literal["C", "F"] = "C" if samples * coordinates <= 1 << 22 else "F"
    return np.empty((samples, coordinates), dtype=dtype, order=order)


def row_blocks(shape: tuple[int, ...], entries: int = 1 << 17) -> list[slice]:
    """Return slices of rows with at most ``entries`` entries; the default, 1 MB in float64, fits in the cache."""
    size = max(1, entries // max(1, shape[1]))
    return [slice(start, min(start + size, shape[0])) for start in range(0, shape[0], size)]


def _columns(block: Array, mean: Array | None, kind: str) -> Array:
    """Return a block of X, centred and in float64, with a column of ones if the intercept is penalised."""
    block = block.astype(np.float64)
    if mean is not None:
        block -= mean
    return np.column_stack([block, np.ones(len(block))]) if kind == "penalized" else block


def _eigenbasis(X: Array, mass: Array, mean: Array | None, kind: str) -> tuple[Array, Array]:
    """Return the eigenvalues and eigenvectors of the weighted Gram matrix.

    Singular values 1e8 times smaller than the largest one cannot be computed accurately from the Gram matrix. If the
    matrix looks ill-conditioned, a blocked QR decomposition (four times slower if X has many rows) is used instead.
    """

    def weighted(rows: slice) -> Array:
        return _columns(X[rows], mean, kind) * np.sqrt(mass[rows, None])

    width, smallest = X.shape[1] + (kind == "penalized"), 1e-150  # the square of anything smaller underflows
    if len(X) > width:
        gram = np.zeros((width, width))
        for block in map(weighted, row_blocks(X.shape)):
            gram += block.T @ block
        values, vectors = np.linalg.eigh(finite(gram))
        if values[0] > max(1e-10 * values[-1], smallest**2):
            return values, vectors
    triangle = np.empty((0, width))
    for block in map(weighted, row_blocks(X.shape)):
        triangle = np.vstack([triangle, block])
        if len(triangle) > width:
            triangle = np.asarray(np.linalg.qr(finite(triangle), mode="r"))
    singular, transposed = np.linalg.svd(finite(triangle), full_matrices=False)[1:]
    floor = np.finfo(np.float64).eps * max(X.shape) * (singular[0] if singular.size else 0)
    seen = singular > max(floor, smallest)  # constant and repeated columns leave directions without examples
    if kind == "none" and not seen.any():  # every example is zero: keep one direction to penalise
        return np.ones(1), np.eye(width, 1)
    return singular[seen] ** 2, transposed[seen].T


def finite(array: Array) -> Array:
    """Return the array, or raise an error if any value has overflowed; LAPACK might not terminate for such an array."""
    if not np.isfinite(array).all():
        raise FloatingPointError(
            "products of features and weights overflow; scale the features (StandardScaler) or the weights"
        )
    return array


def _scaled_design(X: Any, y: Array, masses: Array, bound: Array, kind: str, dtype: Any) -> Design:
    """Return a design with the columns as coordinates and their squared norms increased to bound the Gram matrix."""
    ones, columns, features = np.ones((X.shape[0], 1)), None, X.shape[1]
    if sparse.issparse(X):
        used = np.flatnonzero(np.bincount(X.indices, minlength=features))
        if len(used) < 0.9 * features:  # leave out empty columns
            X, columns = X[:, used], used
        Z = sparse.csr_matrix(X if kind == "none" else sparse.hstack([X, ones]), dtype=dtype)
        signed = sparse.csr_matrix(sparse.diags(-y.astype(dtype)) @ Z)
        squares = np.asarray(signed.power(2).T @ bound).ravel()
    else:
        signed = _empty(X.shape[0], X.shape[1] + (kind != "none"), dtype)
        for rows in row_blocks(X.shape):
            signed[rows, : X.shape[1]] = X[rows]
            signed[rows, X.shape[1] :] = 1
            signed[rows] *= -y[rows, None].astype(dtype)
        squares = np.einsum("ij,ij,i->j", signed, signed, bound)
    squares = np.where(squares > 0, squares, 1.0)
    raised, penalized = _scaling(signed, squares, bound), np.ones(len(squares))
    if kind == "free":
        penalized[-1] = 0
    return Design(signed, squares * raised, penalized, masses, None, None, kind, columns, features, raised)


def _scaling(signed: Any, squares: Array, mass: Array) -> float:
    """Return the largest eigenvalue of the Gram matrix scaled to a unit diagonal, found by power iteration."""
    scale, value, across = 1 / np.sqrt(squares), 1.0, signed.T
    vector = np.random.default_rng(0).random(len(squares)) + 0.5
    for _ in range(30):
        vector /= np.linalg.norm(vector)
        vector = scale * (across @ (mass * (signed @ (scale * vector))))
        before, value = value, max(value, float(np.linalg.norm(vector)))
        if 1 < value <= (1 + 1e-6) * before:
            break
    return 1.1 * value  # power iteration converges from below


def least_squares_start(design: Design, folds: Sequence[int]) -> Array:
    """Return the minimum-norm least-squares solutions (folds, coordinates) for the labels +-1 on some folds."""
    starts = np.zeros((len(folds), design.rank))
    whole = len(design.masses) == 1 and design.basis is not None
    for fold, mass in enumerate(design.masses[list(folds)]):
        target = -design.gradient(mass[None].astype(design.signed.dtype))[0].astype(np.float64)  # sum of mass * y * z
        if whole:
            starts[fold] = target / design.spectrum  # the Gram matrix is this diagonal
        elif design.basis is None or design.rank > EIGEN_LIMIT:
            root, signed = np.sqrt(mass), design.signed
            weighted = sparse.diags(root) @ signed if sparse.issparse(signed) else root[:, None] * signed
            starts[fold] = lsqr(weighted, -root, atol=1e-8, btol=1e-8, iter_lim=500)[0]
        else:
            gram = (design.signed.T * mass.astype(design.signed.dtype)) @ design.signed
            starts[fold] = np.linalg.lstsq(finite(gram.astype(np.float64)), finite(target), rcond=1e-10)[0]
    return starts


def merge_duplicates(X: Any, y: Array, masses: Array) -> tuple[Any, Array, Array]:
    """Merge identical (x, y) rows and sum their masses if this at least halves the number of rows.

    Identical rows must tie, but a blocked product may round them differently. Merged rows cannot differ.
    """
    if sparse.issparse(X) or X.shape[0] < 3 or X.shape[1] == 0:
        return X, y, masses
    if len(X) > 20000 and len(np.unique(_hashes(X[:4096, :64])[0])) > 0.8 * 4096:
        return X, y, masses  # the data are continuous: hashing millions of rows would find nothing
    hashes, table = _hashes(np.column_stack([X, y]))
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    if 2 * len(first) > len(X) or not np.array_equal(table[first[group]], table):
        return X, y, masses
    summed = np.stack([np.bincount(group, mass, minlength=len(first)) for mass in masses])
    return X[first], y[first], summed


def _hashes(table: Array) -> tuple[Array, Array]:
    """Return a hash of each row's bytes, and the rows in float64."""
    table = np.ascontiguousarray(table, dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    words = table.view(np.uint64)
    odd = np.random.default_rng(0).integers(1, 1 << 63, words.shape[1], dtype=np.uint64) * 2 + 1
    return (words * odd ^ (words >> np.uint64(31))).sum(axis=1, dtype=np.uint64), table
