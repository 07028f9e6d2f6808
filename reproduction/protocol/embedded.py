"""Benchmark sets that need no download, because they are generated from their definitions or shipped with scikit-learn.

Each has the same size and codes as the PMLB set with the same name (``ringnorm`` is PMLB's ``ring``; ``twonorm`` and
``ringnorm`` have 2,000 rows instead of 7,400). Codes are treated as numbers, as in PMLB, because their order is part of
the benchmark. If the published set is a random draw, the embedded set is another draw by the same rule, with a fixed
seed; ``EMBEDDED[name].drawn`` states what is drawn.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from closecall._names import Array, lookup
from reproduction.protocol.dataset import Dataset

#: Increase this number when the content of a set changes.
RECIPE = "1"


def _rng(name: str) -> np.random.Generator:
    return np.random.default_rng(list(f"closecall/embedded/{name}".encode()))


def _grid(*sizes: int) -> Array:
    """Return every combination of codes 0..size-1, as an array (product of sizes, len(sizes))."""
    return np.array(list(itertools.product(*map(range, sizes))))


# MONK's problems (Thrun et al. 1991): 432 robots (head 3 x body 3 x smiling 2 x holding 3 x jacket 4 x tie 2). The
# codes are PMLB's: alphabetical in monk1 and monk3 (octagon, round, square; no, yes; balloon, flag, sword; blue,
# green, red, yellow); in monk2, they are the published 1, 2, ..., with round, yes, sword and red first.
_ROBOT = (3, 3, 2, 3, 4, 2)
_OCTAGON, _SWORD, _BLUE, _GREEN, _RED = 0, 2, 0, 1, 2


def _ruled(
    name: str, sizes: Sequence[int], rule: Callable[[Array], Any], again: int = 0, flips: int = 0, first: int = 0
) -> tuple[Array, Array]:
    """Return every combination of codes from ``first`` on, labelled using a rule, with ``again`` of them repeated.

    The repeated combinations are drawn without replacement, and ``flips`` of them have the opposite label.
    """
    X = _grid(*sizes) + first
    y = rule(X.T).astype(int)
    rows = _rng(name).choice(len(X), again, replace=False)
    labels = y[rows]
    labels[:flips] ^= 1
    return np.concatenate([X, X[rows]]), np.concatenate([y, labels])


_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def _tic_tac_toe() -> tuple[Array, Array]:
    """Return every board position in which a game can end if x (code 2) moves first against o (code 1)."""
    ended: dict[tuple[int, ...], int] = {}
    seen: set[tuple[int, ...]] = set()
    todo: list[tuple[int, ...]] = [(0,) * 9]
    while todo:
        board = todo.pop()
        if board in seen:
            continue
        seen.add(board)
        won = {player for player in (1, 2) for line in _LINES if all(board[i] == player for i in line)}
        if won or 0 not in board:
            ended[board] = int(2 in won)
            continue
        player = 2 if board.count(2) == board.count(1) else 1
        todo += [(*board[:i], player, *board[i + 1 :]) for i in range(9) if not board[i]]
    boards = sorted(ended)
    return np.array(boards), np.array([ended[board] for board in boards])


#: Dawson (1995), "The 'Unusual Episode' Data Revisited": (class 1-3 or 4 = crew, child, male) -> (died, survived).
_TITANIC = {
    (1, 0, 1): (118, 57), (1, 0, 0): (4, 140), (1, 1, 1): (0, 5), (1, 1, 0): (0, 1),
    (2, 0, 1): (154, 14), (2, 0, 0): (13, 80), (2, 1, 1): (0, 11), (2, 1, 0): (0, 13),
    (3, 0, 1): (387, 75), (3, 0, 0): (89, 76), (3, 1, 1): (35, 13), (3, 1, 0): (17, 14),
    (4, 0, 1): (670, 192), (4, 0, 0): (3, 20),
}  # fmt: skip


def _titanic() -> tuple[Array, Array]:
    cells = [(who, label, count) for who, counts in _TITANIC.items() for label, count in enumerate(counts)]
    repeats = [count for *_, count in cells]
    return np.repeat([who for who, *_ in cells], repeats, axis=0), np.repeat([label for _, label, _ in cells], repeats)


def _mux6() -> tuple[Array, Array]:
    X = np.repeat(_grid(*[2] * 6), 2, axis=0)  # the published set has every point twice
    address = 2 * X[:, 0] + X[:, 1]
    return X, X[np.arange(len(X)), 2 + address]


def _corral() -> tuple[Array, Array]:
    """Return five copies of 32 rows; the last bit equals the class in three copies and in 24 rows of the fifth copy."""
    bits = _grid(*[2] * 5)
    y = (bits[:, 0] & bits[:, 1]) | (bits[:, 2] & bits[:, 3])
    wrong = np.isin(np.arange(32), _rng("corral").choice(32, 8, replace=False)).astype(int)
    correlated = np.concatenate([y, y, y, 1 - y, y ^ wrong])
    return np.column_stack([np.tile(bits, (5, 1)), correlated]), np.tile(y, 5)


_NORMAL_MEAN = 2 / np.sqrt(20)


def _twonorm() -> tuple[Array, Array]:
    rng = _rng("twonorm")
    y = rng.integers(0, 2, 2000)
    return rng.standard_normal((2000, 20)) + np.where(y, -1, 1)[:, None] * _NORMAL_MEAN, y


def _ringnorm() -> tuple[Array, Array]:
    # The mean 2 / sqrt(20) is that of DELVE, the source of PMLB's `ring`; mlbench has 1 / sqrt(20).
    rng = _rng("ringnorm")
    y = rng.integers(0, 2, 2000)[:, None]
    return rng.standard_normal((2000, 20)) * np.where(y, 1, 2) + y * _NORMAL_MEAN, y[:, 0]


def _wdbc() -> tuple[Array, Array]:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return data.data, 1 - data.target  # 1 is malignant, as in PMLB; in scikit-learn it is the other way round


@dataclass(frozen=True)
class Embedded:
    """How to generate a set, the names of its features, and which part of it is drawn at random."""

    make: Callable[[], tuple[Array, Array]]
    features: str
    drawn: str = ""


_ROBOT_NAMES = "head body smiling holding jacket tie"


def _numbered(count: int) -> str:
    return " ".join(f"x{i}" for i in range(1, count + 1))


#: Every embedded set by name.
EMBEDDED: dict[str, Embedded] = {
    "corral": Embedded(_corral, "A0 A1 B0 B1 irrelevant correlated", "which 8 of the 32 training rows disagree"),
    "mofn-3-7-10": Embedded(
        partial(_ruled, "mofn-3-7-10", [2] * 10, lambda x: x[2:9].sum(axis=0) >= 3, 300), _numbered(10),
        "the 300 training rows",
    ),
    "monk1": Embedded(
        partial(_ruled, "monk1", _ROBOT, lambda x: (x[0] == x[1]) | (x[4] == _RED), 124), _ROBOT_NAMES,
        "the 124 training rows",
    ),
    "monk2": Embedded(
        partial(_ruled, "monk2", _ROBOT, lambda x: (x == 1).sum(axis=0) == 2, 169, first=1), _ROBOT_NAMES,
        "the 169 training rows",
    ),
    "monk3": Embedded(  # 5 % of the training part has the wrong label
        partial(
            _ruled, "monk3", _ROBOT,
            lambda x: ((x[4] == _GREEN) & (x[3] == _SWORD)) | ((x[4] != _BLUE) & (x[1] != _OCTAGON)), 122, flips=6,
        ), _ROBOT_NAMES,
        "the 122 training rows and which 6 of them are mislabelled",
    ),
    "mux6": Embedded(_mux6, "address1 address2 bit0 bit1 bit2 bit3"),
    "parity5": Embedded(partial(_ruled, "parity5", [2] * 5, lambda x: x.sum(axis=0) % 2), _numbered(5)),
    "parity5+5": Embedded(  # which five of the ten bits count is a convention; these are the published five
        partial(_ruled, "parity5+5", [2] * 10, lambda x: x[[1, 2, 3, 5, 7]].sum(axis=0) % 2, 100), _numbered(10),
        "the 100 training rows",
    ),
    "ringnorm": Embedded(_ringnorm, _numbered(20), "all 2,000 rows"),
    "threeOf9": Embedded(  # three adjacent ones anywhere
        partial(_ruled, "threeOf9", [2] * 9, lambda x: (x[:-2] & x[1:-1] & x[2:]).any(axis=0)), _numbered(9)
    ),
    "tic-tac-toe": Embedded(_tic_tac_toe, _numbered(9)),
    "titanic": Embedded(_titanic, "class child male"),
    "twonorm": Embedded(_twonorm, _numbered(20), "all 2,000 rows"),
    "wdbc": Embedded(_wdbc, _numbered(30)),
    "xd6": Embedded(  # any of three conjunctions of three bits; nine tenths of the 512 points are repeated
        partial(_ruled, "xd6", [2] * 9, lambda x: x.reshape(3, 3, -1).min(axis=1).max(axis=0), 461), _numbered(9),
        "the 461 training rows",
    ),
}  # fmt: skip


def embedded(name: str) -> Dataset:
    """Return the embedded set with the given name.

    Examples
    --------
    >>> data = embedded("monk3")
    >>> data.X.shape, data.classes
    ((554, 6), ('0', '1'))
    >>> EMBEDDED["monk3"].drawn
        'the 122 training rows and which 6 of them are mislabelled'
    """
    recipe = lookup(EMBEDDED, name, "embedded data set")
    X, y = recipe.make()
    names = tuple(recipe.features.split())
    return Dataset(name, "embedded", RECIPE, X, y, ("0", "1"), names, (None,) * len(names))
