"""What the faults of the soak share: drivers as processes, what they announced, clusters of Dask, and the audit."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reproduction.protocol.plan import Cell
from reproduction.run.record import pack
from reproduction.run.store import Store

DRIVER = Path(__file__).with_name("soak_driver.py")
PLAN = ["reproduce", "overview", "--datasets", "monk3,titanic", "--max-iter", "20", "--json", "--splits"]
ENGINES = {"local": ["--workers", "2"], "dask": ["--dask-workers", "2"]}
#: An interrupted driver must be gone after so many seconds, on a machine with other things to do.
PROMPT = 20.0


@dataclass
class Story:
    """One result folder and everything that was ever known to be finished in it."""

    out: Path
    splits: int
    known: dict[str, bytes] = field(default_factory=dict)
    announced: Counter[str] = field(default_factory=Counter)


@dataclass
class Tally:
    """What a kind of fault did."""

    injected: int = 0
    lost: int = 0
    doubled: int = 0
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def expect(self, good: bool, otherwise: str) -> None:
        if not good:
            self.wrong.append(otherwise)


class Run:
    """A driver as a process of its own session, its events as they come, and a mark that finds all its children."""

    def __init__(self, story: Story, engine: list[str], limit: int | None = None, **environment: str) -> None:
        self.story, self.mark, self.events = story, f"SOAK_MARK={uuid.uuid4().hex}", 0
        name, _, value = self.mark.partition("=")
        command = [sys.executable, str(DRIVER), *PLAN, str(story.splits), "--out", str(story.out), *engine]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the run
        bound = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True, preexec_fn=bound,
            env={**os.environ, **environment, name: value},
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            with contextlib.suppress(ValueError):  # a killed driver leaves half a line
                event = json.loads(line)
                self.events += 1
                if event["kind"] == "done":
                    self.story.announced[Cell(**event["cell"]).key] += 1

    def wait_for(self, events: int) -> None:
        while self.events < events and self.process.poll() is None:
            time.sleep(0.01)

    def end(self) -> tuple[int, str, float]:
        """Exit code, standard error and how long it took."""
        began = time.monotonic()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        took = time.monotonic() - began
        self.reader.join()
        self.errors.seek(0)
        return self.process.wait(), self.errors.read(), took

    def family(self) -> list[int]:
        """Every process that carries the mark, the driver aside."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (folder / "environ").read_bytes() and int(folder.name) != self.process.pid:
                    found.append(int(folder.name))
        return found

    def workers(self) -> list[int]:
        def is_worker(pid: int) -> bool:
            with contextlib.suppress(OSError):
                return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
            return False

        return [pid for pid in self.family() if is_worker(pid)]

    def leftovers(self) -> list[int]:
        end = time.monotonic() + 10
        while (found := self.family()) and time.monotonic() < end:
            time.sleep(0.05)
        return found


def finished(path: Path) -> dict[str, bytes]:
    with Store(path) as store:
        return {record.key: pack(record.rows) for record in store.records(sorted(store.done()))}


def audit(story: Story, tally: Tally) -> None:
    """Hold the store against everything that was known or announced."""
    path = story.out / "store.sqlite"
    found = finished(path) if path.exists() else {}
    for key in {*story.known, *story.announced}:
        tally.lost += key not in found or story.known.get(key, found[key]) != found[key]
    tally.doubled += sum(count > 1 for count in story.announced.values())
    story.known = found


def wal(story: Story) -> bool:
    """Whether some of a story's records are not in the file itself yet."""
    path = Path(f"{story.out}/store.sqlite-wal")
    return path.exists() and path.stat().st_size > 0


def by_split(path: Path) -> dict[tuple[str, int], bytes]:
    """Packed rows by protocol and split, of a store with one data set."""
    with Store(path) as store:
        cells = {cell.key: cell for cell in store.cells()}
        records = list(store.records(sorted(store.done())))
        return {(cells[record.key].protocol, cells[record.key].split): pack(record.rows) for record in records}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def cluster(port: int, *options: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A scheduler and a worker on loopback, as their own commands; options are the worker's."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    host = ["--host", "127.0.0.1", "--no-dashboard"]
    commands = (
        ["distributed.cli.dask_scheduler", *host, "--port", str(port)],
        ["distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", *host, "--nthreads", "1", "--no-nanny", *options],
    )
    processes = [subprocess.Popen([sys.executable, "-m", *command], **quiet) for command in commands]  # type: ignore[call-overload]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
