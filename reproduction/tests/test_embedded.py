"""The embedded sets match their definitions and, if the data are available, PMLB's sets."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from reproduction.protocol.dataset import Dataset
from reproduction.protocol.embedded import EMBEDDED, embedded
from reproduction.protocol.sources import load_dataset

#: (rows, features, distinct points), and the class sizes of sets without random draws.
SIZES = {
    "corral": (160, 6, 64, (90, 70)),
    "mofn-3-7-10": (1324, 10, 1024, None),
    "monk1": (556, 6, 432, None),
    "monk2": (601, 6, 432, None),
    "monk3": (554, 6, 432, None),
    "mux6": (128, 6, 64, (64, 64)),
    "parity5": (32, 5, 32, (16, 16)),
    "parity5+5": (1124, 10, 1024, None),
    "ringnorm": (2000, 20, 2000, None),
    "threeOf9": (512, 9, 512, (274, 238)),
    "tic-tac-toe": (958, 9, 958, (332, 626)),
    "titanic": (2201, 3, 14, (1490, 711)),
    "twonorm": (2000, 20, 2000, None),
    "wdbc": (569, 30, 569, (357, 212)),
    "xd6": (973, 9, 512, None),
}
#: Sets that are given by their definition, except for a random draw.
RULES = [name for name in EMBEDDED if name not in ("twonorm", "ringnorm", "wdbc")]


def rows_of(data: Dataset, labels: bool = True) -> Counter[tuple[float, ...]]:
    """Return rows as a multiset, with ranks in place of values: PMLB may use other codes."""
    ranks = [np.unique(column, return_inverse=True)[1] for column in data.X.T]
    return Counter(map(tuple, np.column_stack([*ranks, data.y] if labels else ranks).tolist()))


@pytest.mark.parametrize("name", EMBEDDED)
def test_sizes(name: str) -> None:
    data = embedded(name)
    rows, features, distinct, balance = SIZES[name]
    assert data.X.shape == (rows, features)
    assert len(np.unique(data.X, axis=0)) == distinct
    assert data.classes == ("0", "1")
    assert not data.X.flags.writeable
    if balance is not None:
        assert tuple(np.bincount(data.y)) == balance


@pytest.mark.parametrize("name", ["monk1", "monk2", "monk3", "xd6", "mofn-3-7-10", "parity5+5"])
def test_all_points_then_a_draw_without_replacement(name: str) -> None:
    full, wrong = SIZES[name][2], 6 if name == "monk3" else 0
    data = embedded(name)
    truth = {tuple(x): label for x, label in zip(data.X[:full], data.y[:full], strict=True)}
    drawn = [tuple(x) for x in data.X[full:]]
    assert len(truth) == full
    assert len(set(drawn)) == len(drawn)
    assert sum(truth[x] != label for x, label in zip(drawn, data.y[full:], strict=True)) == wrong


def test_tic_tac_toe_boards_are_finished_games() -> None:
    data = embedded("tic-tac-toe")
    squares = data.X.reshape(-1, 3, 3)
    for board, label in zip(squares, data.y, strict=True):
        lines = [*board, *board.T, board.diagonal(), board[:, ::-1].diagonal()]
        x_wins, o_wins = (any((line == player).all() for line in lines) for player in (2, 1))
        assert label == x_wins
        assert x_wins != o_wins or (not x_wins and (board != 0).all())
        assert (board == 2).sum() - (board == 1).sum() == (1 if x_wins or not o_wins else 0)


def test_breimans_error_rates() -> None:
    """The optimal rules have the error rates that Breiman states: 2.3 % (twonorm) and 1.3 % (ringnorm)."""
    data, mean = embedded("twonorm"), 2 / np.sqrt(20)
    wrong = np.mean((data.X.sum(axis=1) < 0) != (data.y == 1))
    assert wrong == pytest.approx(norm.cdf(-2), abs=3 * np.sqrt(0.023 / 2000))
    data = embedded("ringnorm")
    wide = -(data.X**2).sum(axis=1) / 8 - 20 * np.log(2)
    narrow = -((data.X - mean) ** 2).sum(axis=1) / 2
    assert np.mean((narrow > wide) != (data.y == 1)) == pytest.approx(0.013, abs=3 * np.sqrt(0.013 / 2000))


@pytest.mark.shared_data
@pytest.mark.parametrize("name", RULES)
def test_same_construction_as_pmlb(name: str, shared_data: Path) -> None:
    ours, theirs = embedded(name), load_dataset(f"pmlb:{name}", shared_data, download=False)
    assert ours.X.shape == theirs.X.shape
    if not EMBEDDED[name].drawn:
        assert rows_of(ours) == rows_of(theirs)
        return
    # Apart from the draw, which has the same size in both, each point occurs equally often.
    ours_rows, theirs_rows = rows_of(ours), rows_of(theirs)
    assert set(rows_of(ours, labels=False)) == set(rows_of(theirs, labels=False))
    assert Counter(ours_rows.values()) == Counter(theirs_rows.values())
    full = ours_rows & theirs_rows
    assert full.total() >= len(set(rows_of(ours, labels=False)))
    if name == "corral":  # its draw does not affect the class
        assert (np.bincount(ours.y) == np.bincount(theirs.y)).all()


@pytest.mark.shared_data
def test_wdbc_is_pmlbs_before_rounding(shared_data: Path) -> None:
    ours, theirs = embedded("wdbc"), load_dataset("pmlb:wdbc", shared_data, download=False)
    assert (np.bincount(ours.y) == np.bincount(theirs.y)).all()
    for label in (0, 1):
        np.testing.assert_allclose(
            np.sort(ours.X[ours.y == label], axis=0), np.sort(theirs.X[theirs.y == label], axis=0), atol=5.1e-4
        )
