"""Connect to a Dask cluster, or start one on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .passes import ClusterError

#: Seconds to wait for the scheduler to answer, and for its first worker.
FIRST_SIGN, FIRST_WORKER = 10.0, 30.0


@contextmanager
def connected(address: str = "", workers: int = 0) -> Iterator[Any]:
    """Yield a client of the scheduler at ``address``, or of new workers on this machine.

    Parameters
    ----------
    address : str
        Such as ``tcp://host:8786``.
    workers : int
        The number of workers to start if there is no address; 0 means one per core.
    """
    try:
        import distributed
    except ImportError as error:
        raise ImportError("fitting on Dask needs the package distributed: pip install 'closecall[dask]'") from error
    if address:
        with _client(distributed, address) as client:
            yield client
        return
    with distributed.LocalCluster(
        n_workers=workers or os.cpu_count() or 1, threads_per_worker=1, host="127.0.0.1",
        dashboard_address="127.0.0.1:0", silence_logs=50,
    ) as cluster, distributed.Client(cluster, direct_to_workers=True) as client:  # fmt: skip
        yield client  # direct_to_workers: the workers are on this machine, so data can bypass the scheduler


def _client(distributed: Any, address: str) -> Any:
    try:
        client = distributed.Client(address, timeout=FIRST_SIGN)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({error}); start one (dask scheduler), correct the address, or "
            "leave it out to use only this machine"
        ) from error
    try:
        client.wait_for_workers(1, timeout=FIRST_WORKER)
    except TimeoutError as error:
        client.close()
        raise ClusterError(
            f"the Dask scheduler at {address} has no workers; start some (dask worker {address}) and try again"
        ) from error
    return client
