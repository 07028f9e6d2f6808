"""Suites: their members, and which of them are available."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from reproduction.protocol import SUITES, available, load_dataset
from reproduction.protocol.catalogue import FAN8, OPENML100, PMLB94, PMLB_GONE, PMLB_OF_2017, pmlb_today
from reproduction.protocol.sources import resolve
from reproduction.run.scores import title


def test_sizes_of_the_suites() -> None:
    assert {name: len(members) for name, members in SUITES.items()} == {
        "embedded": 15,
        "fan8": 9,
        "pmlb94": 94,
        "openml100": 54,
        "hu4": 4,
        "he2": 2,
    }
    assert len(FAN8) == 8
    for members in SUITES.values():
        assert len(set(members)) == len(members)
        assert all(resolve(member)[0] == member.partition(":")[0] for member in members)
    assert len({data_id for data_id, _ in OPENML100.values()}) == 54


def test_what_is_there_is_found_in_both_spellings(tmp_path: Path) -> None:
    assert available("embedded", tmp_path) == list(SUITES["embedded"])
    assert not any(available(suite, tmp_path) for suite in ("fan8", "pmlb94", "openml100"))
    with pytest.raises(ValueError, match="unknown suite 'all'; choose one of: embedded, fan8"):
        available("all")
    for place in ("pmlb/heart_c/heart_c.tsv.gz", "pmlb/heart-h/heart-h.tsv.gz", "openml100/31_credit-g.csv.gz"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(gzip.compress(b"not read"))
    (tmp_path / "openml" / "44").mkdir(parents=True)
    found = {name for suite in SUITES if suite != "embedded" for name in available(suite, tmp_path)}
    assert found == {"pmlb:heart-c", "pmlb:heart-h", "openml100:31", "openml100:43"}


def test_todays_pmlb_has_the_others() -> None:
    """The installed package has every other set, with the size of 2017."""
    lists = pytest.importorskip("pmlb.dataset_lists", reason="install closecall[bench]")
    sizes = lists.df_summary.set_index("dataset")[["n_instances", "n_features"]].T.to_dict("list")
    here = {name for name, (rows, features, _) in PMLB94.items() if sizes.get(pmlb_today(name)) == [rows, features]}
    assert set(PMLB94) - here == set(PMLB_GONE)
    moved = [name for name in PMLB94 if name not in lists.classification_dataset_names]
    assert len(moved) == 26
    assert len(PMLB_OF_2017) == 94


@pytest.mark.shared_data
def test_pmlb94_is_the_edition_of_2017(shared_data: Path) -> None:
    for name in available("pmlb94", shared_data):
        data = load_dataset(name, shared_data, download=False)
        assert data.version == "2017", name
        assert set(np.unique(data.signs())) == {-1, 1}
        assert data.matrix_paper().shape == PMLB94[data.name][:2]


@pytest.mark.shared_data
def test_openml100_at_hand(shared_data: Path) -> None:
    names = available("openml100", shared_data)
    assert len(names) == 42
    for name in names:
        data = load_dataset(name, shared_data, download=False)
        assert data.name == title(name)
        assert np.isfinite(data.matrix_paper()).all()
        half = np.arange(len(data.y)) % 2 == 0
        assert all(np.isfinite(part).all() for part in data.encode(half, ~half))
