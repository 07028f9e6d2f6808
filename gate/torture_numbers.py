"""Numbers that break numerical code, and attacks that pass them to closecall.

An attack takes a seed and draws a :class:`Case`. It returns if the case is solved, raises :class:`Refused` if it is
refused with a message that says what to do, and raises :class:`Finding` otherwise: for a NaN, a wrong shape, another
exception, an unexpected warning, or an objective that differs from the reference's. The tests of ``gate`` use a few
seeds; ``python -m gate.torture`` uses as many as there is time for.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from closecall import (
    AggregateLossClassifier,
    AggregateLossClassifierCV,
    CloseKClassifier,
    CloseKClassifierCV,
    diagnose,
    load_model,
)
from closecall.aggregates import AGGREGATES
from closecall.losses import LOSSES
from closecall.objective import Problem
from closecall.solvers import solve
from closecall.solvers.reference import solve_one
from closecall.theory import best_intercept, minimum_errors

Attack = Callable[[int], None]
ALPHAS = (0.0, 1e-30, 1e-5, 1.0, 1e5, 1e30)


class Finding(AssertionError):
    """closecall failed where it must not fail."""


class Refused(Exception):
    """The input was refused with a message that says what to do."""


@dataclass(frozen=True)
class Case:
    """A training set of dense or sparse X (samples, features), labels -1 and +1, and weights or None."""

    name: str
    X: Any
    y: np.ndarray
    weight: np.ndarray | None


@contextmanager
def careful(what: str) -> Iterator[None]:
    """Turn clear refusals into Refused and all other errors and warnings, but for ConvergenceWarning, into Finding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ConvergenceWarning)
            yield
    except (Finding, Refused):
        raise
    except (ValueError, FloatingPointError) as error:
        # Messages of NumPy and SciPy about shapes and broadcasting do not help a user.
        obscure = isinstance(error, np.linalg.LinAlgError) or not any(word in str(error) for word in ADVICE)
        if obscure:
            raise Finding(f"{what}: obscure {type(error).__name__}: {error}") from error
        raise Refused(str(error)) from error
    except Exception as error:
        raise Finding(f"{what}: {type(error).__name__}: {error}") from error


#: Each refusal contains one of these texts, which say what is wrong with the input or what to do.
ADVICE = (
    "scale the features", "rescale", "only one class", "raise alpha", "NaN or infinite", "Input X contains",
    "sample_weight", "exceeds the", "encode it", "use stratified", "needs two or more", "each class",
    "leaves no examples", "too small; a whole number", "no training rows", "constant", "needs at least", "spans more",
    "infinity or a value", "total mass", "members in each class",
    "close to the largest float", "sum to more", "impute or scale", "check the scores", "sample weights",
)  # fmt: skip


def _shape(rng: np.random.Generator) -> tuple[str, int, int]:
    name = str(rng.choice(["plain", "two rows", "one feature", "wide", "three rows", "square"]))
    return name, *{
        "plain": (int(rng.integers(6, 40)), int(rng.integers(2, 6))),
        "two rows": (2, int(rng.integers(1, 5))),
        "three rows": (3, 2),
        "one feature": (int(rng.integers(4, 30)), 1),
        "wide": (int(rng.integers(4, 12)), int(rng.integers(30, 80))),
        "square": (12, 12),
    }[name]


def _spread(rng: np.random.Generator, shape: tuple[int, int], low: float, high: float) -> np.ndarray:
    return rng.choice([-1, 1], shape) * 10.0 ** rng.uniform(low, high, shape)


def _constant(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    X = rng.normal(size=shape)
    X[:, ::2] = rng.choice([0.0, 1.0, 1e8, 0.1])
    return X


#: Functions that draw values, by name.
VALUES: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "shifted": lambda rng, shape: rng.normal(size=shape) + 1e6,
    "ties": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "all tied": lambda rng, shape: np.full(shape, rng.choice([0.0, 1.0, -3.5])),
    "constant columns": _constant,
    "repeated columns": lambda rng, shape: np.repeat(rng.normal(size=(shape[0], 1)), shape[1], axis=1),
    "columns 1e-30..1e30": lambda rng, shape: rng.normal(size=shape) * _spread(rng, (1, shape[1]), -30, 30),
    "entries 1e-30..1e30": lambda rng, shape: _spread(rng, shape, -30, 30),
    "huge": lambda rng, shape: rng.normal(size=shape) * 1e30,
    "tiny": lambda rng, shape: rng.normal(size=shape) * 1e-30,
    "denormal": lambda rng, shape: rng.integers(-9, 10, shape) * 5e-324,
    "denormal beside 1": lambda rng, shape: np.where(rng.random(shape) < 0.5, 5e-320, rng.normal(size=shape)),
    "beyond square root": lambda rng, shape: rng.normal(size=shape) * 1e200,
    "largest": lambda rng, shape: rng.choice([-1.0, 0.5, 1.0], shape) * np.finfo(float).max,
    "row outlier": lambda rng, shape: (
        rng.normal(size=shape) * np.where(rng.permutation(shape[0]) == 0, 1e12, 1)[:, None]
    ),
}
TAME_VALUES = ("normal", "ties", "all tied", "constant columns", "repeated columns")


def _memory_map(X: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:  # on POSIX the map remains after the file is removed
        np.save(f"{folder}/x.npy", X)
        return np.load(f"{folder}/x.npy", mmap_mode="r")


def _read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


#: The same numbers in other forms, as far as the type can represent them, by name.
FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "read-only": _read_only,
    "memory map": _memory_map,
    "big-endian": lambda X: X.astype(">f8"),
    "float32": lambda X: np.clip(X, -3e38, 3e38).astype(np.float32),
    "float16": lambda X: np.clip(X, -6e4, 6e4).astype(np.float16),
    "int64": lambda X: np.clip(X * 10, -1e18, 1e18).astype(np.int64),
    "uint8": lambda X: np.clip(X * 50 + 128, 0, 255).astype(np.uint8),
    "bool": lambda X: X > 0,
    "sparse": lambda X: sparse.csr_matrix(X),
    "list": lambda X: X.tolist(),
}

#: Functions that draw weights, by name.
WEIGHTS: dict[str, Callable[[np.random.Generator, int], np.ndarray | None]] = {
    "none": lambda rng, n: None,
    "ones": lambda rng, n: np.ones(n),
    "whole": lambda rng, n: rng.integers(1, 4, n).astype(float),
    "some zero": lambda rng, n: rng.integers(0, 3, n).astype(float),
    "huge": lambda rng, n: rng.random(n) * 1e30,
    "small": lambda rng, n: (rng.random(n) + 0.1) * 1e-30,
    "uneven": lambda rng, n: 10.0 ** rng.uniform(-30, 30, n),
    "denormal": lambda rng, n: rng.integers(1, 9, n) * 5e-324,
    "largest": lambda rng, n: np.full(n, np.finfo(float).max),
}


def draw(seed: int, values: str = "", form: str = "", weight: str = "") -> Case:
    """Return the case of a seed; whatever is named is not drawn."""
    rng = np.random.default_rng(seed)
    shape, n, d = _shape(rng)
    values = values or str(rng.choice(list(VALUES)))
    form = form or str(rng.choice(list(FORMS)))
    weight = weight or str(rng.choice(list(WEIGHTS), p=[0.4, *[0.6 / (len(WEIGHTS) - 1)] * (len(WEIGHTS) - 1)]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = VALUES[values](rng, (n, d))
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        y[:2] = -1.0, 1.0
        if rng.random() < 0.3 and n > 3:  # duplicated rows with opposite labels
            X[n // 2 : n // 2 * 2], y[n // 2 : n // 2 * 2] = X[: n // 2], -y[: n // 2]
        X = FORMS[form](X)
    return Case(f"{shape}/{values}/{form}/{weight}/seed {seed}", X, y, WEIGHTS[weight](rng, n))


def problem(rng: np.random.Generator, loss: str, aggregate: str, alpha: float) -> Problem:
    """Return a problem with fractional counts, which suit any number of examples."""
    takes = AGGREGATES[aggregate].takes
    k = [0.1, 0.5, None][rng.integers(3)] if "k" in takes else None
    m = 0.05 if "m" in takes else None
    return Problem(loss, aggregate, k=k, alpha=alpha, m=m)


def finite(what: str, *arrays: Any) -> None:
    """Raise a finding unless every number is finite."""
    for array in arrays:
        if not np.isfinite(np.asarray(array, dtype=float)).all():
            raise Finding(f"{what}: silent NaN or infinity")


def shaped(what: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise a finding unless the array has this shape."""
    if np.shape(array) != shape:
        raise Finding(f"{what}: shape {np.shape(array)} for {shape}")


def near(scores: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """Return whether each distance |score| / ||coef|| is within the float range, computed by logarithms."""
    size = float(np.abs(coef).max())
    with np.errstate(divide="ignore"):
        return (size > 0) & (np.log10(np.abs(scores)) < 300 + np.log10(size or 1.0))


def attack_solver(seed: int) -> None:
    """All losses x aggregates on one case: results are finite and have the right shapes."""
    case, rng = draw(seed), np.random.default_rng([seed, 1])
    alpha = float(rng.choice(ALPHAS))
    problems = [problem(rng, loss, name, alpha) for loss in LOSSES for name in AGGREGATES]
    X = case.X if sparse.issparse(case.X) else np.asarray(case.X)
    what = f"solve {case.name} alpha {alpha:g}"
    with careful(what):
        found = solve(case.X, case.y, problems, sample_weight=case.weight, max_iter=30)
        for array in (found.objective, found.errors, found.n_iter, found.converged, found.intercept):
            shaped(what, array, (len(problems),))
        shaped(what, found.coef, (len(problems), X.shape[1]))
        finite(what, found.coef, found.intercept, found.objective, found.errors)
        total = len(case.y) if case.weight is None else case.weight.sum()
        if (found.objective < 0).any() or (found.errors > total * (1 + 1e-9)).any():
            raise Finding(f"{what}: a negative objective, or more errors than examples")


def attack_parity(seed: int) -> None:
    """The batched solver against the reference on tame values in every form.

    Convex averages are at most 0.1 % (and 1e-6 absolute) worse. The other convex problems, whose selection magnifies
    rounding errors, are at most 2 % worse where the solver has converged.
    """
    rng = np.random.default_rng([seed, 2])
    values = str(rng.choice(TAME_VALUES))
    case = draw(seed, values=values, weight=str(rng.choice(["none", "ones", "whole"])))
    loss, name = str(rng.choice(list(LOSSES))), str(rng.choice(list(AGGREGATES)))
    item = problem(rng, loss, name, float(rng.choice([1e-2, 1.0, 100.0])))
    what = f"parity {case.name} {item}"
    with careful(what):
        found = solve(case.X, case.y, [item], sample_weight=case.weight, max_iter=300, dtype=np.float64)
    slow = solve_one(case.X, case.y, item, sample_weight=case.weight, max_iter=300)
    ours, theirs = float(found.objective[0]), slow.objective
    if name == "average" and LOSSES[loss].convex:
        if ours > theirs * 1.001 + 1e-6:
            raise Finding(f"{what}: objective {ours} against the reference's {theirs}")
    elif AGGREGATES[name].convex and LOSSES[loss].convex and found.converged[0] and ours > theirs * 1.02 + 1e-6:
        raise Finding(f"{what}: objective {ours} against the reference's {theirs}")


def _models(rng: np.random.Generator, alpha: float) -> list[Any]:
    loss, name = str(rng.choice(list(LOSSES))), str(rng.choice(list(AGGREGATES)))
    item, way = problem(rng, loss, name, alpha), str(rng.choice(["ovr", "top_two", "softmax"]))
    exact = bool(rng.random() < 0.3)  # needs one score at a time
    single = {"exact_intercept": exact, "multiclass": "ovr", "max_iter": 30, "loss": loss, "alpha": alpha}
    return [
        AggregateLossClassifier(aggregate=name, k=item.k, m=item.m, **single),
        CloseKClassifier(**single),
        CloseKClassifier(multiclass=way, max_iter=20, alpha=alpha),
        AggregateLossClassifierCV(max_iter=15, alphas=(alpha, 1.0), cv=2),
        CloseKClassifierCV(max_iter=15, alphas=(alpha, 1.0), ks=(0.5,), cv=2),
    ]


def attack_classifiers(seed: int) -> None:
    """One of the classifiers on two or three classes: fit, predict, scores, distances, save and load."""
    case, rng = draw(seed), np.random.default_rng([seed, 3])
    alpha = float(rng.choice(ALPHAS))
    model = _models(rng, alpha)[rng.integers(5)]
    labels = np.where(case.y > 0, "\u2028</script>", "=1+1")
    labels[2:] = np.where(rng.random(len(labels) - 2) < rng.choice([0, 0.4]), "", labels[2:])
    what, n = f"{type(model).__name__} {case.name} alpha {alpha:g}", len(labels)
    with careful(what):
        model.fit(case.X, labels, sample_weight=case.weight)
        finite(what, model.coef_, model.intercept_)
        scores, distances = model.decision_function(case.X), model.boundary_distance(case.X)
        shaped(what, scores, (n,) if len(model.classes_) == 2 else (n, 3))
        shaped(what, distances, (n,))
        shaped(what, model.predict(case.X), (n,))
        finite(f"{what} scores", scores)
        if np.isnan(distances).any() or (scores.ndim == 1 and (np.isinf(distances) & near(scores, model.coef_)).any()):
            raise Finding(f"{what}: silent NaN or infinity among the distances")
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.npz")
            again = load_model(Path(folder) / "model.npz")
        if not np.array_equal(again.decision_function(case.X), scores):
            raise Finding(f"{what}: the loaded model has other scores")


def attack_prediction(seed: int) -> None:
    """Predictions of an ordinary model for extreme rows: scores and distances are finite, or there is a refusal."""
    rng = np.random.default_rng([seed, 6])
    case = draw(seed)
    new = case.X if sparse.issparse(case.X) else np.asarray(case.X)
    X = rng.normal(size=(30, new.shape[1]))
    labels = rng.integers(0, int(rng.integers(2, 4)), 30)
    calibration = "sigmoid" if rng.random() < 0.5 else None
    model = CloseKClassifier(max_iter=15, calibration=calibration, random_state=0).fit(X * 1e3, labels)
    values = new.toarray() if sparse.issparse(new) else new.astype(float)
    what = f"prediction {case.name} {len(model.classes_)} classes"
    with careful(what):
        finite(what, model.decision_function(new))
        shaped(what, model.predict(new), (new.shape[0],))
        distances = model.boundary_distance(new)
        shaped(what, distances, (new.shape[0],))
        if np.isnan(distances).any() or (np.isinf(distances) & (np.abs(values).max(axis=1) < 1e200)).any():
            raise Finding(f"{what}: a NaN among the distances, or an infinity where the distance is finite")
        if calibration:
            chances = model.predict_proba(new)
            finite(what, chances)
            if not np.allclose(chances.sum(axis=1), 1):
                raise Finding(f"{what}: probabilities do not sum to one")


def attack_diagnosis(seed: int) -> None:
    """The diagnosis: shares are between 0 and 1, and the gain is finite."""
    case = draw(seed)
    what = f"diagnose {case.name}"
    with careful(what):
        found = diagnose(case.X, case.y, case.weight)
        shares = [found.imbalance.value, found.easy.value, found.outliers.value, found.ambiguity.value]
        finite(what, shares, found.gain, found.standard_error)
        if min(shares) < -1e-9 or max(shares) > 1 + 1e-9:
            raise Finding(f"{what}: a share outside [0, 1]: {shares}")


def attack_theory(seed: int) -> None:
    """The exact intercept and the exact 0-1 minimum on small cases."""
    case = draw(seed)
    X = case.X.toarray() if sparse.issparse(case.X) else np.asarray(case.X)
    what = f"theory {case.name}"
    with careful(what):
        intercept, errors = best_intercept(X[:, 0], case.y, case.weight)
        finite(f"{what} best_intercept", intercept, errors)
    with careful(what):
        rows = [*range(min(len(X), 8))]
        weight = None if case.weight is None else case.weight[rows]
        best = minimum_errors(X[rows, :2], case.y[rows], weight, time_limit=5.0)
        finite(f"{what} minimum_errors", best.errors, best.lower_bound, best.coef, best.intercept)
        mass = np.ones(len(rows)) if weight is None else weight
        # Sums of masses from 1e-30 to 1e30 have the rounding error of the largest mass.
        least = min(mass[case.y[rows] > 0].sum(), mass[case.y[rows] < 0].sum())
        if best.lower_bound > best.errors or best.errors > least + 1e-12 * mass.sum():
            raise Finding(f"{what}: {best} is worse than one class for all")


ATTACKS: dict[str, Attack] = {
    "solve": attack_solver,
    "solve against reference": attack_parity,
    "classifiers": attack_classifiers,
    "prediction": attack_prediction,
    "diagnose": attack_diagnosis,
    "theory": attack_theory,
}
