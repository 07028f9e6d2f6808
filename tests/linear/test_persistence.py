"""A saved model comes back whole; a damaged or altered file raises a clear error."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.model_selection import StratifiedKFold

from closecall import AggregateLossClassifier, CloseKClassifier, CloseKClassifierCV, load_model

#: Runs are short on purpose; test_warnings.py tests their warnings.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MODELS = [
    CloseKClassifier(k=0.2, calibration="isotonic", class_weight={"a": 2.0}, random_state=0, max_iter=60),
    AggregateLossClassifier(aggregate="atk", k=20, loss="hinge", multiclass="top_two", max_iter=60),
    CloseKClassifierCV(alphas=(0.1, 1.0), ks=(0.3,), max_iter=60),
    CloseKClassifierCV(alphas=(1.0,), ks=(0.3,), guard=50, max_iter=60),  # is logistic regression
]


def data(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_blobs(90, centers=classes, cluster_std=4, random_state=0)
    return X, np.array(["a", "b", "c"], dtype=object)[y]


@pytest.fixture
def model() -> CloseKClassifier:
    return CloseKClassifier(max_iter=60).fit(*data())


@pytest.fixture
def path(model: CloseKClassifier, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.npz")
    return tmp_path / "model.npz"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_model_comes_back_whole(model: Any, classes: int, tmp_path: Path) -> None:
    X, y = data(classes)
    model.fit(X, y).save(tmp_path / "model.npz")
    again = type(model).load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()
    assert set(vars(again)) == set(vars(model))
    if model.calibration or getattr(model, "guard", 0) == 50:
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    if hasattr(model, "guard_report_"):
        assert repr(again.guard_report_) == repr(model.guard_report_)  # NaN does not equal itself


def test_feature_names_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="feature names come from pandas: pip install pandas")
    X, y = data()
    CloseKClassifier(max_iter=60).fit(pandas.DataFrame(X, columns=["one", "two"]), y).save(tmp_path / "m.npz")
    assert load_model(tmp_path / "m.npz").feature_names_in_.tolist() == ["one", "two"]


@pytest.mark.parametrize("kept", [0, 10, 0.3, 0.9, -1])
def test_a_truncated_file_says_so(kept: float, path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if 0 < kept < 1 else int(kept)])
    with pytest.raises(ValueError, match="save it again"):
        load_model(path)


def test_every_flipped_byte_is_noticed_or_harmless(model: CloseKClassifier, path: Path) -> None:
    whole = path.read_bytes()
    noticed = 0
    for place in range(0, len(whole), 37):
        spoiled = bytearray(whole)
        spoiled[place] ^= 0x55
        path.write_bytes(bytes(spoiled))
        told = ""
        try:  # some bytes, such as dates in the archive, do not matter
            again = load_model(path)
        except ValueError as error:
            told = str(error)
            noticed += 1
        assert "save it again" in told or np.array_equal(again.coef_, model.coef_)
    assert noticed > 20


def test_changed_coefficients_are_noticed(path: Path) -> None:
    with np.load(path) as archive:
        content = dict(archive)
    content["fitted.coef_"] *= 2
    np.savez(path, **content)
    with pytest.raises(ValueError, match="checksum does not match"):
        load_model(path)


def test_other_archives_versions_and_classes(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="contains a model of the class CloseKClassifier; load it with"):
        AggregateLossClassifier.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match=r"damaged|not a complete"):
        load_model(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nowhere.npz")
    monkeypatch.setattr("closecall.linear.persistence.VERSION", 2)
    CloseKClassifier(max_iter=60).fit(*data()).save(path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"version 2; this release reads .* version 1"):
        load_model(path)


def test_an_object_parameter_is_left_out_with_a_warning(tmp_path: Path) -> None:
    X, y = data()
    model = CloseKClassifierCV(cv=StratifiedKFold(3), alphas=(1.0,), ks=(0.3,), max_iter=30).fit(X, y)
    with pytest.warns(UserWarning, match=r"\['cv'\] are objects"):
        model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load_model(tmp_path / "model.npz").predict(X), model.predict(X))


def test_a_failed_save_leaves_the_old_file(
    model: CloseKClassifier, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="no space"):
        model.save(path)
    assert [each.name for each in path.parent.iterdir()] == ["model.npz"]
    assert path.read_bytes() == before
