"""A short soak of fits over partitions; the long one is `python -m gate.soak_cluster`."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("distributed", reason="needs the extra dask")
pytest.importorskip("dask.array", reason="needs the extra dask")


@pytest.mark.skipif(os.name != "posix", reason="workers are killed by signals")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_faults_cost_time_or_are_said_and_nothing_is_left() -> None:
    from gate.soak_cluster import soak

    done, wrong = soak(faults=1, fits=2, seed=1)
    assert wrong == []
    assert sum(count for what, count in done.items() if what.startswith("worker killed")) == 1
    assert done["scheduler lost"] == 1
