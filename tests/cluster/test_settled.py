"""Close-k in passes gives the in-memory result, with a certificate."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

from closecall import CloseKClassifier
from closecall.cluster import DaskCloseKClassifier, fit
from tests.cluster import partitions
from tests.solvers.test_many import draw, excess

ROWS = 85_000


@pytest.mark.parametrize(("seed", "k", "room"), [(0, 0.1, None), (1, 0.4, None), (2, 0.1, 0)])
def test_the_answer_is_certified_and_the_one_in_memory(
    monkeypatch: pytest.MonkeyPatch, seed: int, k: float, room: int | None
) -> None:
    X, y = draw(seed, ROWS, 3)
    X = X.astype(np.float32) if seed == 1 else X
    mass = np.random.default_rng(seed).integers(1, 4, ROWS).astype(float) if seed else np.ones(ROWS)
    if room is not None:
        monkeypatch.setattr(fit, "near_room", lambda: room)
    model = DaskCloseKClassifier(k=k, max_gathered=0).fit_source(partitions(X, y, mass))
    same = CloseKClassifier(k=k).fit(X, y, mass)
    assert same.converged_
    assert model.converged_
    gathered = room is None  # otherwise the steps differ, and the solutions agree only up to the tolerance
    assert model.coef_ == pytest.approx(same.coef_, rel=1e-5 if gathered else 5e-3)
    assert model.intercept_ == pytest.approx(same.intercept_, rel=1e-4 if gathered else 1e-2, abs=1e-4)
    assert np.count_nonzero(model.predict(X) != same.predict(X)) <= (2 if gathered else 100)
    assert excess(X.astype(float), y, mass, model, k * mass.sum()) < 1e-4  # type: ignore[arg-type]
    assert model.n_passes_ <= 62


def test_labels_of_classes_and_their_weights_count_in_passes() -> None:
    X, y = draw(4, ROWS, 2)
    names = np.where(y > 0, "yes", "no").astype(object)
    settings: dict[str, Any] = {"k": 0.2, "class_weight": {"yes": 2.0, "no": 1.0}, "penalize_intercept": True}
    model = DaskCloseKClassifier(max_gathered=0, **settings).fit_source(partitions(X, names, np.ones(ROWS)))
    same = CloseKClassifier(**settings).fit(X, names)
    assert model.converged_
    assert model.coef_ == pytest.approx(same.coef_, rel=1e-4)
