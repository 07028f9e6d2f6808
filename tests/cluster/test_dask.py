"""Dask classifiers: the in-memory result for any partitions, workers that die, and error messages."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

da = pytest.importorskip("dask.array", reason="needs the extra dask")
distributed = pytest.importorskip("distributed", reason="needs the extra dask")

import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402

from closecall import AggregateLossClassifier  # noqa: E402
from closecall.cluster import (  # noqa: E402
    ClusterError,
    DaskAggregateLossClassifier,
    DaskCloseKClassifier,
    PassEvent,
    dask_source,
)
from closecall.cluster.passes import InMemory, make_block  # noqa: E402
from tests.cluster import workers  # noqa: E402

Data = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with workers(3) as cluster, distributed.Client(cluster) as connected:
        yield connected


def table(seed: int, samples: int = 160) -> Data:
    """Return rows with ties, weights (some of them zero) and overlapping classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 3)).round(1 if seed % 2 else 6)
    y = np.where(X @ [1.0, -0.5, 0.2] + rng.normal(size=samples) > 0.2, "yes", "no").astype(object)
    return X, y, rng.integers(0, 4, samples).astype(float) if seed % 3 else rng.random(samples)


def cuts(seed: int, samples: int) -> tuple[int, ...]:
    """Return sizes of uneven partitions, one of them empty."""
    ends = np.sort(np.random.default_rng(seed).integers(1, samples, 3))
    sizes = np.diff([0, *ends, ends[-1], samples])
    return tuple(int(size) for size in sizes)


def as_arrays(data: Data, seed: int = 0) -> tuple[Any, Any, Any]:
    X, y, mass = data
    chunks = cuts(seed, len(y))
    return da.from_array(X, (chunks, 3)), da.from_array(y, (chunks,)), da.from_array(mass, (chunks,))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(20))  # small tables: each fit takes a few passes
def test_the_answer_is_the_one_in_memory_bit_for_bit(client: Any, seed: int) -> None:
    data = table(seed)
    settings: dict[str, Any] = {"alpha": 0.3, "max_iter": 60, "tol": 0.5}
    if seed % 4 == 3:
        model = DaskAggregateLossClassifier(aggregate="atk", k=0.5, class_weight="balanced", **settings)
    else:
        model = DaskCloseKClassifier(k=0.3, loss="hinge" if seed % 4 == 1 else "logistic", **settings)
    X, y, mass = as_arrays(data, seed)
    table_in_memory: Any = data[0]
    if seed % 5 == 4:  # data frames, whose partitions have equal sizes
        table_in_memory = pd.DataFrame(data[0], columns=["a", "b", "c"])
        X, y, mass = (dd.from_pandas(each, npartitions=3) for each in (
            table_in_memory, pd.Series(data[1].astype(str)), pd.Series(data[2])
        ))  # fmt: skip
    model.fit(X, y, mass)
    expected = clone(model).to_local().fit(*data)
    for name in ("coef_", "intercept_", "gap_", "converged_", "k_"):
        assert np.array_equal(getattr(model, name), getattr(expected, name))
    assert model.predict(X).compute().tolist() == expected.predict(data[0]).tolist()
    assert model.predict(table_in_memory).tolist() == expected.predict(data[0]).tolist()
    assert np.allclose(model.decision_function(X).compute(), expected.decision_function(data[0]), rtol=1e-12)


def test_feature_names_are_those_of_the_last_fit_and_always_text(client: Any) -> None:
    X, y, _ = table(2)
    model, labels = DaskCloseKClassifier(), dd.from_pandas(pd.Series(y.astype(str)), npartitions=2)
    for columns, names in ((list("abc"), list("abc")), ([0, 1, 2], None)):
        frame = dd.from_pandas(pd.DataFrame(X, columns=columns), npartitions=2)
        model.fit(frame, labels)
        found = getattr(model, "feature_names_in_", None)
        assert (None if found is None else found.tolist()) == names
        assert len(model.predict(frame).compute()) == len(y)  # a warning about names would be an error


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def some_workers(request: pytest.FixtureRequest) -> Iterator[Any]:
    with workers(request.param) as cluster, distributed.Client(cluster, set_as_default=False) as found:
        yield found


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(20, 25))
def test_passes_end_where_memory_does_however_many_work(some_workers: Any, seed: int) -> None:
    """Without gathering, an average equals scikit-learn's, and a selection equals the in-memory fit."""
    number = seed + 10 * len(some_workers.cluster.workers)
    X, y, mass = data = table(number)
    given = as_arrays(data, number)
    how: dict[str, Any] = {"client": some_workers, "max_gathered": 0}
    seen: list[PassEvent] = []
    average = DaskAggregateLossClassifier(alpha=0.5, callback=seen.append, **how).fit(*given)
    peer = LogisticRegression(C=2.0, solver="newton-cholesky", tol=1e-12).fit(X, y, mass)
    assert average.coef_ == pytest.approx(peer.coef_, rel=1e-4)
    assert average.intercept_ == pytest.approx(peer.intercept_, rel=1e-4, abs=1e-5)
    assert average.predict(X).tolist() == peer.predict(X).tolist()
    for rows in (X, given[0]):
        assert np.allclose(average.predict_proba(rows), peer.predict_proba(X), atol=1e-4)
    assert average.converged_
    assert average.n_passes_ == seen[-1].number <= 10
    kept = int((mass > 0).sum())
    assert all(event.rows_done == kept for event in seen if event.partitions_done == event.partitions == 5)
    settings: dict[str, Any] = {"aggregate": "close" if seed % 2 else "close_decay", "k": 0.4, "alpha": 0.5}
    close = DaskAggregateLossClassifier(**settings, max_iter=30, **how).fit(*given)
    same = AggregateLossClassifier(**settings, max_iter=30).fit(X, y, mass)
    assert close.coef_ == pytest.approx(same.coef_, rel=1e-9)
    assert close.intercept_ == pytest.approx(same.intercept_, rel=1e-9)
    assert close.predict(X).tolist() == same.predict(X).tolist()


def expected_in_passes(data: Data, settings: dict[str, Any]) -> Any:
    """Run the same passes in this process, where no worker is killed."""
    bounds = np.cumsum(cuts(0, len(data[1])))[:-1]
    parts = (np.split(each, bounds) for each in data)
    blocks = [make_block(*part) for part in zip(*parts, strict=True)]
    return DaskAggregateLossClassifier(**settings).fit_source(InMemory(blocks))


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


@pytest.mark.parametrize("between", [False, True])
def test_a_scheduler_that_goes_away_is_an_error_that_says_what_to_do(between: bool) -> None:
    cluster = workers(1)
    client = distributed.Client(cluster)

    def leave(event: PassEvent) -> None:
        if (event.partitions_done == event.partitions) == between:  # between two passes or during one
            cluster.close()

    try:
        model = DaskCloseKClassifier(callback=leave, client=client)
        with pytest.raises(ClusterError, match=r"scheduler was lost.*call fit again|lost a partition"):
            model.fit(*as_arrays(table(3)))
    finally:
        client.close()
        cluster.close()


def test_wrong_arguments_raise_errors_with_a_reason(client: Any) -> None:
    X, y, mass = as_arrays(table(4))
    close, in_passes = DaskCloseKClassifier(), DaskCloseKClassifier(max_gathered=0)
    trimmed = DaskAggregateLossClassifier(aggregate="trimmed", m=5, max_gathered=0)
    three = da.from_array(np.arange(160) % 3, chunks=y.chunks)
    for error, match, model, data in (
        (TypeError, "use CloseKClassifier to fit it in memory", close, table(4)),
        (TypeError, "y is a ndarray", close, (X, table(4)[1])),
        (ValueError, "must have the same number|the same partitions", close, (X, y[:-1])),
        (ValueError, "contains NaN", close, (da.where(X > 1, np.nan, X), y)),
        (ValueError, "negative", close, (X, y, -mass)),
        (ValueError, "only one class", close, (X, da.zeros(len(y), chunks=y.chunks))),
        (ValueError, "raise max_gathered", trimmed, (X, y)),
        (ValueError, "multiclass='ovr'", in_passes, (X, three)),
    ):
        with pytest.raises(error, match=match):
            model.fit(*data)
