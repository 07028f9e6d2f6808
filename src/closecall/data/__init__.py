"""Data sets: generated, embedded, and read from PMLB, OpenML or files.

`load_dataset` turns a name or a path into a `Dataset`; `SUITES` names lists of them and `available` says which are at
hand. `closecall.data.synthetic` draws the paper's Figure 1 and examples, `closecall.data.simulate` makes a set harder
as Figure 5 does.
"""

from .dataset import DataError, Dataset, NotAtHandError
from .sources import data_directory, load_dataset
from .suites import SUITES, Availability, available

__all__ = [
    "SUITES",
    "Availability",
    "DataError",
    "Dataset",
    "NotAtHandError",
    "available",
    "data_directory",
    "load_dataset",
]
