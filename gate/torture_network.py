"""The attacks of :mod:`gate.torture_numbers` on the PyTorch losses and the paper's network."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse

from closecall.aggregates import AGGREGATES
from closecall.losses import LOSSES
from closecall.nn import ResidualMLPClassifier, logit_losses
from closecall.nn.functional import aggregate, weights
from gate.torture_numbers import ALPHAS, WEIGHTS, Attack, Refused, careful, draw, finite, shaped

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
#: Ordinary and extreme logits.
LOGITS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "ties": lambda rng, n: rng.integers(-1, 2, n).astype(float),
    "zeros": lambda rng, n: np.zeros(n),
    "huge": lambda rng, n: rng.normal(size=n) * 1e30,
    "tiny": lambda rng, n: rng.normal(size=n) * 1e-30,
    "largest": lambda rng, n: rng.choice([-1.0, 1.0], n) * 8e37,
    "denormal": lambda rng, n: rng.integers(-3, 4, n) * 1e-45,
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.3, np.inf, rng.normal(size=n)),
    "minus infinite": lambda rng, n: np.where(rng.random(n) < 0.3, -np.inf, rng.normal(size=n)),
    "NaN": lambda rng, n: np.where(np.arange(n) == 0, np.nan, rng.normal(size=n)),
}
MASSES = ("none", "some zero", "huge", "small", "uneven")


def attack_functional(seed: int) -> None:
    """One loss and aggregate on extreme logits: the value and the gradient are finite, or there is a clear refusal."""
    rng = np.random.default_rng(seed)
    kind, mass_kind = str(rng.choice(list(LOGITS))), str(rng.choice(MASSES, p=[0.6, 0.1, 0.1, 0.1, 0.1]))
    loss, name = str(rng.choice(list(LOSSES))), str(rng.choice(list(AGGREGATES)))
    dtype = DTYPES[rng.integers(len(DTYPES))]
    n = int(rng.integers(1, 30))
    takes = AGGREGATES[name].takes
    k, m = (float(rng.choice([0.1, 0.5, 1.0])) if "k" in takes else None), (0.05 if "m" in takes else None)
    with np.errstate(over="ignore"):
        logits = torch.tensor(LOGITS[kind](rng, n)).to(dtype).requires_grad_()
    given = WEIGHTS[mass_kind](rng, n)
    mass = None if given is None else torch.tensor(given).to(dtype)
    targets = torch.tensor(rng.integers(0, 2, n))
    reduction = str(rng.choice(["mean", "sum"]))
    what = f"{name} {loss} {kind}/{mass_kind}/{dtype}/{reduction}/n {n}/k {k}/seed {seed}"
    with careful(what):
        found = logit_losses(loss, logits, targets)
        settings: dict[str, Any] = {"k": k, "m": m, "threshold": LOSSES[loss].threshold, "mass": mass}
        chosen = weights(name, found.losses, **settings)
        shaped(what, chosen, tuple(logits.shape))
        value = aggregate(name, found.losses, reduction=reduction, **settings)
        shaped(what, value.detach(), ())
        finite(f"{what} weights", chosen)
        if float(found.losses.detach().double().abs().max()) * (n if given is None else given.sum()) > 1e38:
            raise Refused("the sum itself is beyond the type")
        (gradient,) = torch.autograd.grad(value, logits)
        shaped(what, gradient, (n,))
        finite(f"{what} value", value.detach().double())
        finite(f"{what} gradient", gradient.double())


def attack_network(seed: int) -> None:
    """The network classifier for a few steps: parameters and scores are finite, or there is a clear refusal."""
    case, rng = draw(seed), np.random.default_rng([seed, 5])
    X = case.X.toarray() if sparse.issparse(case.X) else case.X
    loss, name = str(rng.choice(list(LOSSES))), str(rng.choice(["average", "close_decay", "atk", "top"]))
    model = ResidualMLPClassifier(
        loss=loss, aggregate=name, k=0.5 if AGGREGATES[name].takes else None, alpha=float(rng.choice(ALPHAS)),
        hidden=3, max_iter=6, random_state=0,
    )  # fmt: skip
    labels = rng.integers(0, int(rng.integers(2, 4)), len(case.y))
    labels[:2] = 0, 1
    what = f"network {loss} {name} alpha {model.alpha:g} {case.name}"
    with careful(what):
        model.fit(X, labels, sample_weight=case.weight)
        finite(f"{what} parameters", model.network_.parameters.values)
        scores = model.decision_function(X)
        finite(f"{what} scores", scores)
        shaped(what, model.predict(X), (len(labels),))


ATTACKS: dict[str, Attack] = {"torch losses": attack_functional, "network": attack_network}
