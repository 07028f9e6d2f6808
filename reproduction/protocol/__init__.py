"""The experiments: data sets, divisions, the grid, the baselines, the targets and the published numbers.

`load_dataset` turns a name or a path into a `Dataset`; `SUITES` names lists of them and `available` says which are
available locally. `synthetic` draws the paper's Figure 1 and examples, `simulate` makes a set harder as Figure 5 does.
"""

from closecall.table.read.dataset import DataError, NotAtHandError
from reproduction.protocol.dataset import Dataset

from .sources import data_directory, load_dataset
from .suites import SUITES, available

__all__ = ["SUITES", "DataError", "Dataset", "NotAtHandError", "available", "data_directory", "load_dataset"]
