"""Families of aggregates in ``compare`` and ``fit`` on the command line, checked against a plain loop."""

from collections.abc import Iterator

import numpy as np
import pytest

from closecall import AggregateLossClassifier
from closecall.aggregates import AGGREGATES, spectrum
from closecall.families import FAMILIES
from closecall.table.compare import ComparePlan, run_splits
from closecall.table.divide import Order
from closecall.table.model import TableModel
from closecall.table.table import read
from tests.table.helpers import QUICK, Run, clouds, plants, written

OWN = "my_spectrum"


@pytest.fixture
def own() -> Iterator[None]:
    AGGREGATES[OWN] = spectrum(OWN, lambda u: np.minimum(2 * u, 1.0), convex=True)
    yield
    del AGGREGATES[OWN]


def test_every_family_takes_part_on_request(run: Run) -> None:
    asked = [word for name in FAMILIES for word in ("--with", name)]
    found = run.compare(written(clouds(60)), *QUICK, "--only", "human(0.4,0.3),logistic_regression", *asked)
    assert set(found) == {"human(0.4,0.3)", "logistic_regression", "close_k", "majority", *FAMILIES}
    for name, family in FAMILIES.items():
        assert found[name]["label"] == family.label
        assert found[name]["setting"].partition(", alpha=")[0] in family.grid
        assert found[name]["accuracy"] > 0.7
    assert found["human(0.4,0.3)"]["setting"].startswith("human(0.4,0.3), alpha=")


#: A dozen settings for each family; the first of the best wins.
SETTINGS = {
    "tilted": [(f"tilted({t})", alpha) for t in (-4, -1, 0.5, 2) for alpha in (100, 1, 0.01)],
    "superquantile": [(f"superquantile({p},{w})", a) for p in (0.5, 0.8, 0.95) for w in (0.1, 1) for a in (10, 0.1)],
    "human": [(f"human({turn},{least})", a) for turn in (0.2, 0.4, 0.8) for least in (0.3, 0.7) for a in (10, 0.1)],
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("many", [False, True])
def test_compare_is_a_plain_loop_over_the_settings(run: Run, many: bool) -> None:
    """Every setting is fitted to the first part; the first of the best on the second part is fitted to both."""
    rows = clouds(60, apart=1.0)
    if many:
        rows += [f"{row.partition(',')[0]},{3 + place % 7 / 2},maybe" for place, row in enumerate(rows[:20])]
    table = read(written(rows))
    codes = np.unique(table.labels.astype(str), return_inverse=True)[1]
    plan = ComparePlan(splits=2, extra=("tilted",) if many else tuple(FAMILIES), only=("logistic_regression",),
                       jobs=1, squashed=False)  # fmt: skip
    split, (train, validation, test) = next(zip(run_splits(table, plan), Order().divisions(codes, 2, 0), strict=True))
    known = np.concatenate([train, validation])
    frame = table.frame[[column.name for column in table.columns]].astype(float).to_numpy()
    X = (frame - frame[known].mean(axis=0)) / frame[known].std(axis=0)
    entries = [entry for entry in split.entries.values() if entry.method in FAMILIES]
    assert len(entries) == len(plan.extra)
    for entry in entries:
        settings = SETTINGS[entry.method]
        tried = [model(*setting).fit(X[train], codes[train]) for setting in settings]
        right = [(each.predict(X[validation]) == codes[validation]).sum() for each in tried]
        member, alpha = settings[int(np.argmax(right))]
        assert entry.setting == f"{member}, alpha={alpha:g}"
        again = model(member, alpha).fit(X[known], codes[known])
        assert (again.predict(X[test]) == entry.predicted).all()
        assert entry.value == pytest.approx((entry.predicted == codes[test]).mean())


def model(member: str, alpha: float) -> AggregateLossClassifier:
    return AggregateLossClassifier(aggregate=member, alpha=alpha, multiclass="top_two", tol=1e-3)


@pytest.mark.usefixtures("own")
def test_a_new_aggregate_is_compared_and_fitted(run: Run) -> None:
    """An aggregate that is added to the list takes part; this one is the average of the larger half of the losses."""
    name = written(clouds(60))
    assert run.compare(name, *QUICK, "--only", OWN)[OWN]["label"] == "my spectrum"
    run.fit(name, "--model", OWN)
    assert TableModel.load("m").classifier.aggregate == OWN
    assert "chosen: " in run.err


def test_a_member_is_fitted_saved_and_applied(run: Run) -> None:
    table, name = written(clouds(80)), "tilted(-2)"
    run.fit(table, "--model", name, "--splits", 2, "--json")
    (record,) = run.records()
    assert record["classifier"] == name
    assert record["aggregate"] in (name, "average")
    assert TableModel.load("m").classifier.aggregate == name
    assert len(run.predict(table)) == 80


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_are_fitted_in_the_requested_form(run: Run) -> None:
    for model, form in (("close-k", "softmax"), ("close-k", "top_two"), ("tilted", "ovr"), ("tilted", "top_two")):
        run.fit(plants(60), "--model", model, "--multiclass", form)
        kept = TableModel.load("m").classifier
        assert kept.multiclass == form
    tried = zip(kept.cv_results_["param_aggregate"], kept.cv_results_["param_alpha"], strict=True)
    assert {pair for pair in tried if pair[0] != "average"} == set(SETTINGS["tilted"])
