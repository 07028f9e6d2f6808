"""The paper's numbers, as printed, and the denominators that their rounding reveals.

Source: He & Zou, "Minimizing Close-k Aggregate Loss Improves Classification", Tables 1-5. Tables 1, 2, 4 and 5 are
square: the entry in row i and column j is the fraction of data sets on which method j beats method i. Table 3 gives
mean test errors in percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from closecall._names import Array, lookup

#: The columns of every table, in the paper's order.
METHODS = ("close", "close_decay", "atk", "average", "top")
LOSSES = ("logistic", "hinge")
MODELS = ("linear", "network")


@dataclass(frozen=True)
class PairTable:
    """One of the square tables.

    Parameters
    ----------
    name, caption : str
    suite : str
        The suite of data sets it is about.
    criterion : str
        ``"significant"`` (p < 0.05) or ``"points"`` (at least 2 percentage points).
    text : str
        The entries as printed: linear above network, logistic left of hinge, ``-`` on the diagonals.
    denominators : dict
        Model -> the numbers of data sets that fit the rounding of all its entries. The first gives the widest
        interval and is the one used.
    """

    name: str
    caption: str
    suite: str
    criterion: str
    text: str
    denominators: dict[str, tuple[int, ...]]

    def fractions(self, model: str, loss: str) -> Array:
        """The (5, 5) fractions of one model and loss, NaN on the diagonal; row i, column j: j beats i.

        Examples
        --------
        >>> table = get_table("table1")
        >>> float(table.fractions("linear", "logistic")[METHODS.index("atk"), METHODS.index("close_decay")])
        0.29
        """
        row, column = 5 * MODELS.index(model), 5 * LOSSES.index(loss)
        return _parse(self.text)[row : row + 5, column : column + 5]


@cache
def _parse(text: str) -> Array:
    rows = [[np.nan if word == "-" else float(word) for word in line.split()] for line in text.strip().splitlines()]
    entries = np.array(rows)
    entries.setflags(write=False)
    return entries


_TABLE1 = """
  -   0.04 0.00 0.00 0.03    -   0.08 0.00 0.00 0.01
 0.00  -   0.00 0.00 0.02   0.00  -   0.00 0.00 0.01
 0.26 0.29  -   0.01 0.06   0.20 0.26  -   0.05 0.03
 0.27 0.27 0.03  -   0.08   0.22 0.25 0.04  -   0.08
 0.28 0.32 0.10 0.15  -     0.27 0.28 0.10 0.12  -
  -   0.06 0.00 0.00 0.01    -   0.09 0.01 0.03 0.04
 0.04  -   0.02 0.02 0.03   0.02  -   0.01 0.00 0.02
 0.04 0.06  -   0.02 0.03   0.02 0.03  -   0.00 0.01
 0.04 0.08 0.02  -   0.03   0.06 0.09 0.03  -   0.06
 0.26 0.28 0.23 0.23  -     0.29 0.30 0.24 0.27  -
"""

_TABLE2 = """
  -   0.04 0.00 0.00 0.00    -   0.07 0.02 0.00 0.00
 0.02  -   0.00 0.00 0.02   0.04  -   0.00 0.00 0.00
 0.33 0.30  -   0.04 0.09   0.35 0.33  -   0.00 0.07
 0.30 0.28 0.04  -   0.11   0.30 0.28 0.04  -   0.07
 0.50 0.46 0.28 0.33  -     0.46 0.46 0.28 0.30  -
  -   0.05 0.00 0.00 0.00    -   0.05 0.00 0.02 0.00
 0.00  -   0.00 0.00 0.00   0.00  -   0.00 0.02 0.00
 0.00 0.05  -   0.00 0.02   0.02 0.07  -   0.00 0.00
 0.02 0.11 0.05  -   0.00   0.02 0.09 0.00  -   0.00
 0.25 0.23 0.25 0.25  -     0.23 0.30 0.18 0.30  -
"""

_TABLE4 = """
  -   0.04 0.01 0.01 0.01    -   0.09 0.01 0.02 0.02
 0.02  -   0.02 0.02 0.01   0.03  -   0.01 0.02 0.02
 0.23 0.25  -   0.04 0.06   0.24 0.24  -   0.10 0.03
 0.18 0.23 0.03  -   0.06   0.17 0.18 0.04  -   0.06
 0.35 0.34 0.14 0.20  -     0.29 0.33 0.10 0.15  -
  -   0.09 0.04 0.04 0.00    -   0.08 0.07 0.04 0.03
 0.06  -   0.03 0.02 0.03   0.03  -   0.02 0.03 0.02
 0.08 0.11  -   0.07 0.04   0.08 0.09  -   0.04 0.03
 0.10 0.11 0.02  -   0.06   0.08 0.09 0.08  -   0.07
 0.29 0.29 0.23 0.28  -     0.29 0.32 0.27 0.32  -
"""

_TABLE5 = """
  -   0.04 0.00 0.00 0.00    -   0.04 0.00 0.00 0.00
 0.00  -   0.00 0.00 0.00   0.00  -   0.00 0.00 0.00
 0.19 0.19  -   0.00 0.12   0.15 0.19  -   0.00 0.08
 0.19 0.19 0.00  -   0.15   0.15 0.19 0.00  -   0.04
 0.19 0.23 0.00 0.00  -     0.23 0.27 0.04 0.04  -
  -   0.02 0.00 0.00 0.02    -   0.11 0.05 0.07 0.02
 0.00  -   0.00 0.00 0.00   0.02  -   0.00 0.02 0.00
 0.05 0.05  -   0.02 0.02   0.05 0.05  -   0.02 0.00
 0.02 0.02 0.00  -   0.00   0.07 0.07 0.02  -   0.02
 0.34 0.34 0.32 0.34  -     0.34 0.34 0.30 0.34  -
"""

#: The square tables by name. The paper says 94 PMLB and 54 OpenML sets, yet its fractions are not multiples of 1/94:
#: 0.25 lies between 23/94 and 24/94. PMLB's denominators are the largest that fit every entry of both its tables.
#: OpenML's two linear tables have none in common up to 54: 46 and 54 fit Table 2, 26, 48 (if 6/48 = 0.125 was rounded
#: down) and 52 fit Table 5; its network tables share 44.
PAIR_TABLES: dict[str, PairTable] = {
    table.name: table
    for table in (
        PairTable(
            "table1",
            "Fraction of PMLB data sets with significant improvement (p < 0.05)",
            "pmlb94",
            "significant",
            _TABLE1,
            {"linear": (93,), "network": (90,)},
        ),
        PairTable(
            "table2",
            "Fraction of OpenML data sets with significant improvement (p < 0.05)",
            "openml100",
            "significant",
            _TABLE2,
            {"linear": (46, 54), "network": (44,)},
        ),
        PairTable(
            "table4",
            "Fraction of PMLB data sets with improvement of at least 2 percentage points",
            "pmlb94",
            "points",
            _TABLE4,
            {"linear": (93,), "network": (90,)},
        ),
        PairTable(
            "table5",
            "Fraction of OpenML data sets with improvement of at least 2 percentage points",
            "openml100",
            "points",
            _TABLE5,
            {"linear": (26, 52), "network": (44,)},
        ),
    )
}


def get_table(name: str) -> PairTable:
    """Return a square table by name; an unknown name raises ``ValueError`` listing the known ones."""
    return lookup(PAIR_TABLES, name, "published table")


#: Table 3's rows as the paper names them -> mean test error in percent, logistic then hinge, in the order of METHODS.
TABLE3: dict[str, tuple[float, ...]] = {
    "monk": (11.37, 11.01, 18.45, 19.86, 18.73, 11.36, 11.44, 17.05, 17.78, 18.56),
    "phoneme": (21.90, 21.67, 23.00, 23.29, 23.11, 21.51, 21.56, 22.06, 23.01, 23.21),
    "madelon": (44.29, 44.79, 45.98, 44.34, 47.42, 44.31, 44.22, 44.31, 43.26, 46.78),
    "spambase": (7.30, 7.33, 7.51, 7.62, 8.40, 7.59, 7.41, 7.22, 7.38, 8.33),
    "titanic": (22.17, 21.51, 22.14, 22.26, 22.57, 21.98, 22.03, 22.13, 22.29, 22.60),
    "australian": (12.86, 13.22, 12.69, 12.65, 12.89, 13.09, 13.36, 13.21, 12.65, 13.05),
    "splice": (15.90, 16.37, 16.24, 15.83, 16.22, 16.41, 16.42, 16.16, 15.89, 16.12),
    "german": (24.48, 24.33, 23.93, 23.98, 26.32, 24.99, 24.15, 24.67, 24.45, 25.62),
}

#: The entries of Table 3 that the paper prints in bold, as (row, loss, method).
TABLE3_BOLD = frozenset(
    {
        ("monk", "logistic", "close"),
        ("monk", "logistic", "close_decay"),
        ("monk", "hinge", "close"),
        ("monk", "hinge", "close_decay"),
        ("phoneme", "logistic", "close"),
        ("phoneme", "logistic", "close_decay"),
    }
)

#: Our data set -> its row of Table 3. The paper's "german" may be either of two encodings; both are set against it.
TABLE3_ROW: dict[str, str] = {
    "monk3": "monk",
    "phoneme": "phoneme",
    "madelon": "madelon",
    "spambase": "spambase",
    "titanic": "titanic",
    "australian": "australian",
    "splice3175": "splice",
    "german": "german",
    "german-num": "german",
}


def table3_error(dataset: str, loss: str, method: str) -> float | None:
    """The paper's mean test error in percent, or None for a data set that is not in Table 3.

    Examples
    --------
    >>> table3_error("monk3", "logistic", "close_decay"), table3_error("adult", "hinge", "top")
    (11.01, None)
    """
    row = TABLE3_ROW.get(dataset)
    return None if row is None else TABLE3[row][5 * LOSSES.index(loss) + METHODS.index(method)]


def fits(fraction: float, denominator: int) -> bool:
    """Whether some count out of ``denominator`` rounds to ``fraction`` at two decimals (a half may go either way).

    Examples
    --------
    >>> fits(0.25, 94), fits(0.25, 93)
    (False, True)
    """
    counts = np.arange(denominator + 1) / denominator
    return bool((np.abs(counts - fraction) <= 0.005 + 1e-12).any())
