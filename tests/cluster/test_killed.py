"""Fits during which worker processes are killed, one by one or all."""

import asyncio
import multiprocessing
import os
import signal
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="needs the extra dask")
distributed = pytest.importorskip("distributed", reason="needs the extra dask")

from closecall.cluster import (  # noqa: E402
    ClusterError,
    DaskAggregateLossClassifier,
    DaskCloseKClassifier,
    PassEvent,
    dask_source,
)
from tests.cluster import workers  # noqa: E402
from tests.cluster.test_dask import as_arrays, expected_in_passes, table  # noqa: E402


def work(address: str) -> None:
    """Run one worker in this process, without a nanny."""

    async def live() -> None:
        async with distributed.Worker(address, nthreads=1, dashboard=False, silence_logs=50) as worker:
            await worker.finished()

    asyncio.run(live())


@pytest.mark.skipif(os.name != "posix", reason="processes are forked")
def test_a_process_killed_in_each_phase_costs_a_repeat() -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["closecall.cluster"])  # imported once for all processes
    data, lost = table(2, 600), list[str]()
    settings: dict[str, Any] = {"alpha": 2.0, "max_gathered": 0}
    cluster = workers(0)
    processes = [context.Process(target=work, args=(cluster.scheduler_address,), daemon=True) for _ in range(4)]

    def kill(event: PassEvent) -> None:
        if event.phase not in lost and event.partitions_done == 1:
            os.kill(processes[len(lost)].pid or 0, signal.SIGKILL)
            lost.append(event.phase)

    try:
        for process in processes:
            process.start()
        with distributed.Client(cluster) as client:
            client.wait_for_workers(4)
            model = DaskAggregateLossClassifier(callback=kill, client=client, **settings).fit(*as_arrays(data))
    finally:
        cluster.close()
        for process in processes:
            process.kill()
            process.join()
    again = expected_in_passes(data, settings)
    assert lost == ["survey", "sample", "sums"]
    assert [process.exitcode for process in processes[:3]] == [-signal.SIGKILL] * 3
    assert np.array_equal(model.coef_, again.coef_)
    assert model.n_passes_ == again.n_passes_


def test_without_any_worker_a_fit_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_source, "POLL", 0.1)
    monkeypatch.setattr(dask_source, "LONGEST_ALONE", 0.3)

    def lose(event: PassEvent) -> None:
        if event.partitions_done == 1 and cluster.workers:
            cluster.sync(cluster.workers[0].close, timeout=1, executor_wait=False)

    with workers(1) as cluster, distributed.Client(cluster) as client:
        model = DaskCloseKClassifier(callback=lose, client=client)
        with pytest.raises(ClusterError, match=r"no Dask worker for.*call fit again"):
            model.fit(*as_arrays(table(3)))
