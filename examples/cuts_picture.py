"""Draw the picture on the solver page: the clipped loss of each aggregate, and a path of cuts.

    python examples/cuts_picture.py [docs/assets/cuts.svg]

The data are generated: two overlapping clouds, with a tenth of the rows far on the wrong side.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from closecall.losses import get_loss
from closecall.solvers.cuts import LossWindow
from closecall.solvers.path import PathTask, follow
from closecall.solvers.rows import DenseRows

T = get_loss("logistic").threshold
#: Lower and upper edge of each aggregate's window in the picture.
WINDOWS = {
    "average": (-np.inf, np.inf),
    "atk, maximal": (0.9, np.inf),
    "trimmed": (-np.inf, 1.5),
    "ranked range, top": (0.9, 1.5),
    "close": (T - 0.4, T + 0.4),
}


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.where(np.arange(220) < 110, 1.0, -1.0)
    X = rng.normal(size=(220, 2)) + 0.8 * y[:, None]
    X[::10] = -8.0 * y[::10, None] * np.abs(rng.normal(size=(22, 2)))
    return X, y


def path() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mass inside the cut, the cut and the misclassified share at thirty points of one path."""
    X, y = data()
    mass, size = np.ones(len(y)), len(y)
    k = np.geomspace(0.9, 0.05, 30) * size
    [(spots, _)] = follow(DenseRows(X, y, mass, True, False), [PathTask("logistic", mass, mass, 1.0, k, np.zeros(3))])
    inside, cuts, errors = np.array([[spot.inside, spot.cut, spot.errors] for spot in spots]).T
    return inside / size, cuts, errors / size


def main(target: Path) -> None:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    charged, walked = figure.subplots(1, 2)
    losses = np.linspace(0, 2.2, 400)
    for name, (low, high) in WINDOWS.items():
        charge = LossWindow(low, high, 0.1).parts(losses)[1]
        charged.plot(losses, charge + (low if np.isfinite(low) else 0.0), label=name)
    charged.axvline(T, color="grey", linewidth=0.8)
    charged.annotate("T", (T, 2.1), color="grey")
    charged.set(xlabel="loss of an example", ylabel="clipped loss", title="Clipped losses with rounded corners")
    charged.legend(frameon=False, fontsize=8)
    inside, cut, errors = path()
    walked.plot(inside, cut, label="cut e")
    walked.plot(inside, errors, label="training error")
    walked.set(xlabel="share of the rows inside the cut", title="One path visits every k", xscale="log")
    walked.invert_xaxis()
    walked.legend(frameon=False, fontsize=8)
    figure.savefig(target, metadata={"Date": None}, format="svg")


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "closecall"  # makes the file reproducible
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/assets/cuts.svg"))
