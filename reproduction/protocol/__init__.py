"""The experiments: data sets, splits, the grid, the targets and the published numbers.

`load_dataset` turns a name or a path into a `Dataset`; `SUITES` holds named lists of sets, and `available` returns the
sets that are available locally. `synthetic` draws the sets in the paper's Figure 1 and Examples 1 and 2, and makes a
set harder as in Figure 5.
"""

from closecall.table.read.dataset import DataError

from .catalogue import SUITES
from .dataset import Dataset
from .remote import NotAtHandError
from .sources import available, data_directory, load_dataset

__all__ = ["SUITES", "DataError", "Dataset", "NotAtHandError", "available", "data_directory", "load_dataset"]
