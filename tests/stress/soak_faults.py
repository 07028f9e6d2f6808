"""The faults form of the soak: break `closecall reproduce` in every way at random points, count what is lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from closecall.paper.plan import Cell
from closecall.paper.record import pack
from closecall.paper.salvage import salvage
from closecall.paper.store import Store, StoreError

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


class Soak:
    """All kinds of faults on stories that are driven to their end."""

    def __init__(self, folder: Path, splits: int, seed: int) -> None:
        self.folder, self.splits, self.chance = folder, splits, random.Random(seed)
        self.tallies: dict[str, Tally] = {}
        self.stories: dict[str, Story] = {}
        self.changed, self.completed = 0, 0
        reference = self.fresh()
        code, errors, _ = Run(reference, ENGINES["local"]).end()
        if code:
            raise SystemExit(f"the undisturbed run failed: {errors}")
        self.reference = finished(reference.out / "store.sqlite")

    def fresh(self) -> Story:
        return Story(Path(tempfile.mkdtemp(dir=self.folder)) / "out", self.splits)

    def story(self, engine: str) -> Story:
        """The story that goes on, or a new one if it has come to its end."""
        story = self.stories.get(engine)
        if story is None or len(story.known) == len(self.reference):
            self.stories[engine] = story = self.fresh()
        return story

    def strike(self, kind: str) -> None:
        name, _, engine = kind.partition(" on ")
        tally = self.tallies.setdefault(kind, Tally())
        KINDS[name](self, tally, engine or "local")

    def close(self, story: Story, tally: Tally) -> None:
        audit(story, tally)
        if len(story.known) == len(self.reference):
            self.completed += 1
            self.changed += story.known != self.reference

    def interrupt(self, tally: Tally, engine: str, number: signal.Signals) -> None:
        story = self.story(engine)
        run = Run(story, ENGINES[engine])
        if self.chance.random() < 0.3:
            time.sleep(self.chance.uniform(0, 5))  # anywhere, the start included
        else:
            run.wait_for(self.chance.randint(1, 2 * self.splits))
            time.sleep(self.chance.uniform(0, 0.2))
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGINT and self.chance.random() < 0.5:
                os.killpg(run.process.pid, number)  # as a terminal does
            else:
                run.process.send_signal(number)
        code, errors, took = run.end()
        tally.injected += 1
        tally.slowest = max(tally.slowest, took)
        if number != signal.SIGKILL:
            # Before Python runs our first line nobody can answer a signal: then it ends as the system does it.
            early = run.events == 0 and code in (-number, 130, 1)
            tally.expect(code in (0, 2) or early, f"exit code {code}: {errors[-300:]}")
            tally.expect(code != 2 or "the same command resumes" in errors, f"no word on how to go on: {errors[-300:]}")
            tally.expect(took < PROMPT, f"took {took:.1f} s to end")
        tally.expect(not (left := run.leftovers()), f"{len(left)} processes are left")
        self.close(story, tally)

    def kill_worker(self, tally: Tally, engine: str) -> None:
        story = self.fresh()
        run = Run(story, ENGINES[engine])
        run.wait_for(self.chance.randint(2, 2 * self.splits))
        workers = run.workers()
        if workers:
            os.kill(self.chance.choice(workers), signal.SIGKILL)
            tally.injected += 1
        code, errors, _ = run.end()
        tally.expect(code == 0, f"exit code {code}: {errors[-300:]}")
        tally.expect(not run.leftovers(), "processes are left")
        self.close(story, tally)

    def fill_disk(self, tally: Tally, engine: str) -> None:
        story, size = self.fresh(), self.chance.randint(100, 300)
        story.out.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(story.out)]
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        try:
            run = Run(story, ENGINES[engine], limit=None if mounted else size * 1024)
            code, errors, _ = run.end()
            tally.injected += 1
            tally.expect(code == 2, f"exit code {code} on a full disk: {errors[-300:]}")
            tally.expect("room" in errors and "the same command resumes" in errors, f"unclear: {errors[-300:]}")
            tally.expect(not run.leftovers(), "processes are left")
            audit(story, tally)
            if mounted:
                subprocess.run(["mount", "-o", "remount,size=64m", str(story.out)], check=True)
            code, errors, _ = Run(story, ENGINES[engine]).end()
            tally.expect(code == 0, f"exit code {code} after room was made: {errors[-300:]}")
            self.close(story, tally)
        finally:
            if mounted:
                subprocess.run(["umount", str(story.out)], check=True)

    def second_driver(self, tally: Tally, engine: str) -> None:
        story = self.fresh()
        first = Run(story, ENGINES[engine])
        first.wait_for(2)
        second = Run(story, ENGINES[engine])
        code, errors, _ = second.end()
        tally.injected += 1
        tally.expect(code == 3 and f"another run (process {first.process.pid} on" in errors, f"{code}: {errors[-300:]}")
        code, errors, _ = first.end()
        tally.expect(code == 0, f"the first driver ended with {code}: {errors[-300:]}")
        self.close(story, tally)

    def jump_clock(self, tally: Tally, engine: str) -> None:
        story = self.fresh()
        code, errors, _ = Run(story, ENGINES[engine], SOAK_CLOCK="1").end()
        tally.injected += 1
        tally.expect(code == 0, f"exit code {code}: {errors[-300:]}")
        self.close(story, tally)

    def restart_scheduler(self, tally: Tally, engine: str) -> None:
        story, port = self.fresh(), _free_port()
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(_cluster(port))
            run = Run(story, ["--scheduler", f"tcp://127.0.0.1:{port}"])
            run.wait_for(self.chance.randint(2, self.splits))
            cluster[0].send_signal(self.chance.choice([signal.SIGKILL, signal.SIGTERM]))
            cluster[0].wait()
            cluster[1].kill()
            tally.injected += 1
            stack.enter_context(_cluster(port))
            code, errors, _ = run.end()
        tally.expect(code == 0, f"exit code {code}: {errors[-300:]}")
        self.close(story, tally)

    def flip_bytes(self, tally: Tally, engine: str) -> None:
        """Up to eight bytes of a store, its WAL included: never a wrong record, never a word of nothing."""
        source = max(self.stories.values(), key=lambda story: len(story.known), default=None)
        if source is None or not source.known:
            return
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        path = folder / "store.sqlite"
        for ending in ("", "-wal"):
            if Path(f"{source.out}/store.sqlite{ending}").exists():
                shutil.copy(f"{source.out}/store.sqlite{ending}", f"{path}{ending}")
        content = bytearray(path.read_bytes())
        for _ in range(self.chance.randint(1, 8)):
            content[self.chance.randrange(len(content))] ^= self.chance.randint(1, 255)
        path.write_bytes(content)
        tally.injected += 1
        try:
            found = finished(path)
        except StoreError as error:
            tally.expect("salvage" in str(error) or "schema" in str(error), f"unclear: {error}")
            try:
                salvage(path)
                found = finished(path)
            except StoreError as error:
                tally.expect("no whole record" in str(error), f"salvage failed: {error}")
                found = {}
        tally.expect(all(source.known.get(key) == rows for key, rows in found.items()), "a record changed silently")
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _cluster(port: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A scheduler and a worker on loopback, as their own commands."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    host = ["--host", "127.0.0.1", "--no-dashboard"]
    commands = (
        ["distributed.cli.dask_scheduler", *host, "--port", str(port)],
        ["distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", *host, "--nthreads", "1", "--no-nanny"],
    )
    processes = [subprocess.Popen([sys.executable, "-m", *command], **quiet) for command in commands]  # type: ignore[call-overload]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _signal(number: signal.Signals) -> Callable[[Soak, Tally, str], None]:
    return lambda soak, tally, engine: soak.interrupt(tally, engine, number)


KINDS: dict[str, Callable[[Soak, Tally, str], None]] = {
    "SIGKILL": _signal(signal.SIGKILL),
    "SIGTERM": _signal(signal.SIGTERM),
    "SIGINT": _signal(signal.SIGINT),
    "worker killed": Soak.kill_worker,
    "disk full": Soak.fill_disk,
    "second driver": Soak.second_driver,
    "clock jumps": Soak.jump_clock,
    "scheduler restarted": Soak.restart_scheduler,
    "flipped bytes": Soak.flip_bytes,
}
LONG = (
    "SIGKILL on local", "SIGTERM on local", "SIGINT on local", "flipped bytes", "SIGKILL on dask", "SIGTERM on dask",
    "SIGINT on dask", "flipped bytes", "worker killed on local", "worker killed on dask", "disk full on local",
    "second driver on local", "clock jumps on local", "scheduler restarted", "flipped bytes",
)  # fmt: skip
SHORT = ("SIGKILL on local", "SIGTERM on local", "SIGINT on dask", "disk full on local", *["flipped bytes"] * 20)


def soak(faults: int, kinds: tuple[str, ...], splits: int, seed: int) -> bool:
    """Inject so many faults, kind after kind; print the table; True if nothing was lost, doubled or unclear."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: the drivers would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        run = Soak(Path(folder), splits, seed)
        for number in range(faults):
            kind = kinds[number % len(kinds)]
            run.strike(kind)
            if not kind.startswith("flipped"):
                tally = run.tallies[kind]
                print(f"  {number + 1:4} {kind}: {'; '.join(tally.wrong[-1:]) or 'as promised'}", flush=True)
    print(f"\n{'fault':24} {'injected':>8} {'lost':>5} {'doubled':>8} {'slowest end':>12} {'not as promised':>16}")
    for kind, tally in run.tallies.items():
        print(f"{kind:24} {tally.injected:8} {tally.lost:5} {tally.doubled:8} "
              f"{tally.slowest:10.1f} s {len(tally.wrong):16}")  # fmt: skip
    total = {
        name: sum(getattr(tally, name) for tally in run.tallies.values()) for name in ("injected", "lost", "doubled")
    }
    wrong = [f"{kind}: {text}" for kind, tally in run.tallies.items() for text in tally.wrong]
    print(f"faults injected {total['injected']}, cells lost {total['lost']}, cells doubled {total['doubled']}, not as "
          f"promised {len(wrong)}; {run.completed} runs brought to their end, {run.changed} differ from the "
          "undisturbed one")  # fmt: skip
    print("\n".join(wrong))
    return not (total["lost"] or total["doubled"] or wrong or run.changed)
