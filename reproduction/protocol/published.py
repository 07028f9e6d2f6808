"""The numbers printed in the paper, from ``published.toml``, and the denominators implied by their rounding."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from closecall._names import Array

#: The columns of every table, in the paper's order.
METHODS = ("close", "close_decay", "atk", "average", "top")
LOSSES = ("logistic", "hinge")
MODELS = ("linear", "network")
_PRINTED = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class PairTable:
    """A square table for a suite and a criterion: ``significant`` (p < 0.05) or ``points`` (at least 2 points).

    ``entries`` (10, 10) are as printed; ``denominators`` holds, for each model, the possible numbers of data sets.
    """

    name: str
    suite: str
    criterion: str
    entries: Array
    denominators: dict[str, tuple[int, ...]]

    def fractions(self, model: str, loss: str) -> Array:
        """Return the (5, 5) fractions for one model and loss: entry (i, j) says how often j beats i (NaN if i = j)."""
        row, column = 5 * MODELS.index(model), 5 * LOSSES.index(loss)
        return self.entries[row : row + 5, column : column + 5].copy()


#: Rows of Table 3 by the paper's names -> mean test errors in percent, logistic then hinge, in the order of METHODS.
TABLE3: dict[str, tuple[float, ...]] = {name: tuple(errors) for name, errors in _PRINTED.pop("table3").items()}
#: The square tables by name.
PAIR_TABLES: dict[str, PairTable] = {
    name: PairTable(
        name,
        t["suite"],
        t["criterion"],
        np.genfromtxt(t["text"].splitlines()),
        {model: tuple(t[model]) for model in MODELS},
    )
    for name, t in _PRINTED.items()
}
#: Our data set -> its row of Table 3. The paper's "german" may be either of two encodings; both are compared with it.
TABLE3_ROW: dict[str, str] = {
    **{name: name for name in TABLE3 if name not in ("monk", "splice")},
    "monk3": "monk", "splice3175": "splice", "german-num": "german",
}  # fmt: skip


def table3_error(dataset: str, loss: str, method: str) -> float | None:
    """Return the paper's mean test error in percent, or None for a data set that is not in Table 3."""
    row = TABLE3_ROW.get(dataset)
    return None if row is None else TABLE3[row][5 * LOSSES.index(loss) + METHODS.index(method)]
