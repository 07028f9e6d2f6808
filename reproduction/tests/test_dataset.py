"""`Dataset`: laws, encodings compared with scikit-learn's, and rejected input."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from closecall.table.read.dataset import DataError
from reproduction.protocol import dataset as module
from reproduction.protocol.dataset import Dataset


def make(seed: int = 0, rows: int = 40, missing: float = 0.2, **changes: Any) -> Dataset:
    """Return two numeric and two nominal columns (2 and 4 categories) with some missing values."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((rows, 2)), rng.integers(0, 2, rows), rng.integers(0, 4, rows)])
    X[rng.random(X.shape) < missing] = np.nan
    X[:2] = [[0, 1, 0, 2], [1, 0, 1, 3]]
    y = np.concatenate([[0, 1], rng.integers(0, 2, rows - 2)])
    categories = (None, None, ("no", "yes"), ("a", "b", "c", "d"))
    fields = {"name": "mixed", "source": "file", "version": "", "X": X, "y": y, "classes": ("neg", "pos")}
    return Dataset(**{**fields, "feature_names": ("u", "v", "bit", "letter"), "categories": categories, **changes})


@settings(max_examples=20)  # scikit-learn's transformers take a tenth of a second each time
@given(seed=st.integers(0, 10_000))
def test_encode_agrees_with_scikit_learn(seed: int) -> None:
    pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    data = make(seed)
    train, rest = np.arange(25), np.arange(25, 40)
    numbers = make_pipeline(SimpleImputer(strategy="mean"))
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    names = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
    frame = data.frame()
    peer = make_column_transformer((numbers, ["u", "v"]), (names, ["bit", "letter"]))
    wanted = [peer.fit(frame.iloc[train]).transform(frame.iloc[rows]) for rows in (train, rest)]
    # scikit-learn keeps both columns of a pair; ours keeps the second.
    columns = [0, 1, 3, *range(4, wanted[0].shape[1])]
    for ours, theirs in zip(data.encode(train, rest), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs[:, columns])


@given(seed=st.integers(0, 10_000))
def test_encode_learns_from_the_training_rows_alone(seed: int) -> None:
    data = make(seed)
    train, rest = np.arange(20), np.arange(20, 40)
    X = data.X.copy()
    X[rest] = make(seed + 1).X[rest]
    other = replace(data, X=X)
    np.testing.assert_array_equal(data.encode(train, rest)[0], other.encode(train, rest)[0])
    mask = np.arange(40) < 20
    for by_index, by_mask in zip(data.encode(train, rest), data.encode(mask, ~mask), strict=True):
        np.testing.assert_array_equal(by_index, by_mask)


def test_encode_of_unseen_and_all_missing() -> None:
    X = np.array([[np.nan, 0, np.nan], [np.nan, 1, np.nan], [5, 2, 0], [np.nan, 3, 1]])
    data = Dataset(
        "odd", "file", "", X, np.array([0, 1, 0, 1]), ("0", "1"), ("n", "c", "m"),
        (None, ("a", "b", "c", "d"), ("p", "q")),
    )  # fmt: skip
    train, rest = data.encode([0, 1], [2, 3])
    np.testing.assert_array_equal(train, [[0, 0], [0, 1]])  # n has no known value, m has no column
    np.testing.assert_array_equal(rest, [[5, 0], [0, 0]])
    with pytest.raises(DataError, match="no training rows"):
        data.encode([], [0])


def test_encode_refuses_what_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MATRIX_BYTES", 1000)
    with pytest.raises(DataError, match="one-hot encoding would give 7 columns"):
        make().encode(np.arange(40))


def test_matrix_paper_drops_columns_with_holes() -> None:
    data = make(missing=0)
    np.testing.assert_array_equal(data.matrix_paper(), data.X)
    X = data.X.copy()
    X[3, 1] = X[5, 2] = np.nan
    np.testing.assert_array_equal(replace(data, X=X).matrix_paper(), X[:, [0, 3]])
    X[3] = np.nan
    with pytest.raises(DataError, match=r"every column has missing values.*'sound'"):
        replace(data, X=X).matrix_paper()


def test_checksum_is_of_the_content() -> None:
    data = make()
    assert data.checksum == make(name="other", source="pmlb", version="9").checksum
    assert data.checksum == replace(data, feature_names=("1", "2", "3", "4")).checksum
    assert len(data.checksum) == 64
    X = data.X.copy()
    X[0, 0] = np.nextafter(X[0, 0], 9)
    y = data.y.copy()
    y[5] ^= 1
    categories = (None, None, ("no", "yes"), ("a", "b", "c", "e"))
    changed = {"X": X, "y": y, "categories": categories, "classes": "ab"}
    assert len({data.checksum, *(replace(data, **{name: new}).checksum for name, new in changed.items())}) == 5
    X[0, 0] = -0.0
    assert replace(data, X=X).checksum == replace(data, X=np.where(X == 0, 0.0, X)).checksum


def test_signs() -> None:
    data = make()
    np.testing.assert_array_equal(data.signs(), 2 * data.y - 1)
    three = make(y=np.arange(40) % 3, classes=("a", "b", "c"))
    with pytest.raises(DataError, match=r"3 classes .*'a', 'b', 'c'.*choose two classes or merge"):
        three.signs()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"X": np.ones((40, 0)), "feature_names": (), "categories": ()}, "no columns other than the target"),
        ({"X": np.full((40, 4), np.inf)}, "infinite values in 'u', 'v'"),
        ({"y": np.zeros(40), "classes": ("a",)}, "only one class"),
        ({"X": np.tile([1, 2, np.nan, 0], (40, 1))}, "every feature is constant"),
    ],
)
def test_refusals(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(DataError, match=match):
        make(**changes)
