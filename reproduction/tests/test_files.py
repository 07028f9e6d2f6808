"""Files: tables of every kind, and damaged files."""

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from closecall.table.preprocess import Preprocessor
from closecall.table.read import sheet
from closecall.table.read.dataset import DataError
from closecall.table.table import read
from reproduction.protocol import load_dataset
from reproduction.protocol.files import read_bytes

pd = pytest.importorskip("pandas", reason="install closecall[bench]")

SMALL = "a,b,target\n1,x,no\n2,y,yes\n3,x,no\n4,,yes\n"


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if path.name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz", "parquet"])
def test_a_file_of_every_kind(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"mine.{ending}"
    if ending == "parquet":
        pytest.importorskip("pyarrow")
        pd.read_csv(write(tmp_path / "t.csv", SMALL)).to_parquet(path)
    else:
        write(path, SMALL.replace(",", "\t") if "tsv" in ending else SMALL)
    for name in (path, str(path), f"file:{path}"):
        data = load_dataset(name)
        assert (data.name, data.source, data.classes) == ("mine", "file", ("no", "yes"))
        assert data.feature_names == ("a", "b")
        assert data.categories == (None, ("x", "y"))
        np.testing.assert_array_equal(data.X, [[1, 0], [2, 1], [3, 0], [4, np.nan]])
        np.testing.assert_array_equal(data.signs(), [-1, 1, -1, 1])


def test_target_by_name_missing_marks_and_spelling(tmp_path: Path) -> None:
    text = "\ufeffclass,n,flag,<b>\n2,NA,True,é\n10,1.5,False,?\n2,2,True,e\n10,3,False,é\n"
    data = load_dataset(write(tmp_path / "odd <i>name.csv", text), target="class")
    assert data.classes == ("2", "10")  # in numerical order
    assert data.feature_names == ("n", "flag", "<b>")
    assert data.categories == (None, ("False", "True"), ("e", "é"))
    assert data.name == "odd <i>name"
    np.testing.assert_array_equal(data.X[:, 1], [1, 0, 1, 0])
    assert np.isnan([data.X[0, 0], data.X[1, 2]]).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_a_file_is_the_same_to_the_protocols_and_to_compare(seed: int) -> None:
    """``reproduce --datasets x.csv`` and ``compare x.csv`` find the same target, columns, classes and matrix."""
    rng, n = np.random.default_rng(seed), 40
    columns: dict[str, object] = {
        "id": np.arange(n), "number": np.where(rng.random(n) < 0.2, "?", rng.normal(size=n).astype(str)),
        "comma": [f"{value:.2f}".replace(".", ",") for value in rng.normal(size=n)],
        "name": rng.choice(["a", "b", "", "c"], n), "two": rng.choice(["x", "y"], n), "same": "1",
        "flag": rng.choice(["true", "false", ""], n), "text": [f"'{value}" for value in rng.integers(8, 12, n)],
        "zip": rng.permutation(np.repeat(["10", "9", "b2", "?"], n // 4)),
        "day": [f"{day:02}.02.2024" for day in rng.integers(1, 29, n)],
        "label": rng.permutation(np.repeat(["no", "yes"], n // 2)),
    }  # fmt: skip
    names = rng.permutation(list(columns))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        pd.DataFrame({name: columns[name] for name in names}).to_csv(
            path, sep=str(rng.choice([";", "\t"])), index=False
        )
        data, table = load_dataset(path), read(str(path))
    assert data.feature_names == tuple(column.name for column in table.columns)
    assert {"number", "comma", "name", "two", "day", "flag", "text", "zip"} == set(data.feature_names)
    assert [data.classes[code] for code in data.y] == table.labels.tolist()
    recipe = Preprocessor.fit(table.frame, table.columns, squashed=False)
    whole = recipe.matrix(table.frame) * recipe.scale + recipe.mean
    np.testing.assert_allclose(data.encode(np.arange(n))[0], whole, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("target\n0\n1\n", "no usable column besides the target"),
        ("a,target\n1,\n2,\n3,\n", "'target' is empty in every row"),
        ("a,target\n1,0\n1,1\n", "'a' is left out: it has only one value"),
        ("a,target\ninf,0\ninf,1\n", "'a' is left out"),
        ("a,target\n" + "".join(f"{i},{i / 7}\n" for i in range(20)), "20 classes in 20 rows"),
        (b"a,target\n\xff\xfe,0\n1,1\n", "UTF-8"),
    ],
)
def test_bad_tables_get_a_clear_error(text: str | bytes, match: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=match):
        load_dataset(write(tmp_path / "bad.csv", text))


def test_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="cannot read"):
        load_dataset(tmp_path / "none.csv")
    with pytest.raises(DataError, match="unknown kind of file"):
        load_dataset(tmp_path / "none.xlsx")
    (tmp_path / "directory.csv").mkdir()
    with pytest.raises(DataError, match="cannot read"):
        load_dataset(tmp_path / "directory.csv")
    whole = gzip.compress((SMALL * 500).encode())
    for name, raw, match in [
        ("cut", whole[: len(whole) // 2], "truncated or damaged"),
        ("tail", whole[:-6], "truncated or damaged"),
        ("flip", whole[:60] + bytes([whole[60] ^ 255]) + whole[61:], "truncated or damaged"),
        ("pointer", b"version https://git-lfs.github.com/spec/v1\n", "not a gzip file"),
        ("nothing", b"", "not a gzip file"),
    ]:
        (tmp_path / f"{name}.csv.gz").write_bytes(raw)
        with pytest.raises(DataError, match=match):
            load_dataset(tmp_path / f"{name}.csv.gz")
    bomb = write(tmp_path / "bomb.csv.gz", b"0" * 200_000)
    assert bomb.stat().st_size < 1000
    with pytest.raises(DataError, match="more than the 100000 bytes allowed when unpacked"):
        read_bytes(bomb, limit=100_000)


def test_parquet_bounds_and_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": np.zeros(1000), "target": ["x", "y"] * 500}).to_parquet(path)
    monkeypatch.setattr(sheet, "LIMIT", 1000)
    with pytest.raises(DataError, match="1000 rows x 2 columns, which is too much"):
        load_dataset(path)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="truncated or not a Parquet file"):
        load_dataset(path)
    pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2021-01-01"]), "target": [0, 1]}).to_parquet(path)
    assert load_dataset(path).X.ravel().tolist() == [18262, 18628]  # days since 1970


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DataError, match=r"closecall\[bench\]"):
        load_dataset(write(tmp_path / "mine.csv", SMALL))
    assert load_dataset("monk3").X.shape == (554, 6)


def test_data_imports_neither_pandas_nor_sklearn() -> None:
    code = "import sys, reproduction.protocol; print([n for n in ('pandas', 'sklearn', 'pmlb') if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
