"""The diagnosis detects each of the paper's cases in data made for it; the displays draw the right numbers."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from closecall import (
    AggregateLossClassifier,
    BoundaryDisplay,
    CloseKClassifier,
    CloseKClassifierCV,
    KPathDisplay,
    diagnose,
)


def line(*parts: tuple[float, float, int, int]) -> tuple[np.ndarray, np.ndarray]:
    X = np.concatenate([np.linspace(low, high, count) for low, high, count, _ in parts])[:, None]
    return X, np.repeat([label for *_, label in parts], [count for _, _, count, _ in parts])


EVEN = ((-2.0, 0.1, 200, 0), (-0.1, 2.0, 200, 1))


def test_each_case_is_read_where_it_is() -> None:
    clean = diagnose(*line(*EVEN))
    rare = diagnose(*line((-2.0, 0.1, 20, 0), (-0.1, 2.0, 400, 1)))
    far = diagnose(*line(*EVEN, (-40.0, -20.0, 20, 1)))
    mixed = diagnose(*line((-2.0, 1.0, 200, 0), (-1.0, 2.0, 200, 1)))
    easy = diagnose(*line((-9.0, -8.0, 190, 0), (-0.5, 0.1, 10, 0), (-0.1, 0.5, 10, 1), (8.0, 9.0, 190, 1)))
    assert rare.imbalance.value < 0.05 < 0.45 < clean.imbalance.value
    assert far.outliers.value > 0.2
    assert clean.outliers.value == mixed.outliers.value == 0
    assert mixed.ambiguity.value > 0.2 > 0.06 > clean.ambiguity.value
    assert easy.easy.value > 0.9 > clean.easy.value
    assert far.likely_to_help
    assert not clean.likely_to_help
    assert far.gain > 0.2
    assert "rare" in rare.imbalance.reading


def test_units_do_not_matter_and_text_has_five_lines() -> None:
    X, y = line(*EVEN)
    assert str(diagnose(X, y)) == str(diagnose(1024 * X, y))
    assert len(str(diagnose(X, y)).splitlines()) == 5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_any_aggregate_may_be_tried() -> None:
    """Compare with scikit-learn's own folds; with distant outliers, close-k and trimming both gain."""
    X, y = line(*EVEN, (-40.0, -20.0, 20, 1))
    usual = diagnose(X, y)
    assert usual.tried == "close-k"
    cases = {"close_decay": {"k": 0.3}, "trimmed": {"m": 0.1}, "tilted(1)": {}, "human(0.4,0.3)": {}}
    for name, counts in cases.items():
        found = diagnose(X, y, aggregate=name, **counts)
        assert found.outliers == usual.outliers
        assert str(found).splitlines()[-1].startswith(f"{name} ")
        assert found.gain == pytest.approx(by_folds(X, y, name, counts), abs=0.01)
        assert (found.gain > 0.1) == (name in ("close_decay", "trimmed"))
    assert diagnose(X, y, aggregate="average").gain == 0
    assert diagnose(X, y, aggregate="close_decay", k=0.1).gain == usual.gain
    with pytest.raises(ValueError, match="unknown aggregate"):
        diagnose(X, y, aggregate="nobody")


def by_folds(X: np.ndarray, y: np.ndarray, name: str, counts: dict[str, float]) -> float:
    folds = StratifiedKFold(5, shuffle=True, random_state=1)
    models = LogisticRegression(), AggregateLossClassifier(aggregate=name, tol=1e-3, **counts)
    plain, other = (cross_val_score(make_pipeline(StandardScaler(), each), X, y, cv=folds).mean() for each in models)
    return float(other - plain)


def test_three_classes() -> None:
    X, y = line(*EVEN, (3.0, 4.0, 100, 2))
    found = diagnose(np.column_stack([X, X**2]), y)
    assert found.imbalance.value == pytest.approx(0.2)


@pytest.fixture
def pyplot() -> object:
    matplotlib = pytest.importorskip("matplotlib", reason="drawing needs matplotlib: pip install 'closecall[plots]'")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_k_path_shows_every_k_and_the_baseline(pyplot: object) -> None:
    X, y = line(*EVEN, (-40.0, -20.0, 20, 1))
    model = CloseKClassifierCV(alphas=(0.1, 1.0), ks=(0.1, 42, 0.5), guard=0, max_iter=60).fit(X, y)
    display = KPathDisplay.from_estimator(model)
    np.testing.assert_allclose(display.ks, [0.1, 0.5])  # 42 of 420 examples is a tenth
    results = model.cv_results_
    for k, mean in zip(display.ks, display.means, strict=True):
        assert mean in results["mean_test_score"][results["param_aggregate"] == "close_decay"], k
    assert display.baseline < display.means.max()
    assert display.ax_.get_xlabel() == "k / n"
    assert display.figure_ is display.ax_.figure


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_boundary_rings_the_close_calls(pyplot: object) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    X[:, 0] += y
    model = CloseKClassifier(k=9).fit(X, y)
    display = BoundaryDisplay.from_estimator(model, X, y, resolution=30)
    rings = display.ax_.collections[-1].get_offsets()
    np.testing.assert_allclose(np.asarray(rings), X[model.support_])
    assert len(rings) == 9
    xx, yy, zz = display.grid
    np.testing.assert_array_equal(model.predict(np.column_stack([xx.ravel(), yy.ravel()])), zz.ravel())
    with pytest.raises(ValueError, match="two features"):
        BoundaryDisplay.from_estimator(model, np.ones((3, 3)), [0, 1, 0])
