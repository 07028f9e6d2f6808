"""The faults form of the soak: break `closecall reproduce` in every way at random points, count what is lost."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gate.soak_runs import ENGINES, PROMPT, Run, Story, Tally, audit, by_split, cluster, finished, free_port, wal
from reproduction.run.salvage import salvage
from reproduction.run.store import Store, StoreError

OTHER_VERSION = Path(__file__).with_name("soak_other_version.py")


class Soak:
    """All kinds of faults on stories that are driven to their end."""

    def __init__(self, folder: Path, splits: int, seed: int) -> None:
        self.folder, self.splits, self.chance = folder, splits, random.Random(seed)
        self.tallies: dict[str, Tally] = {}
        self.stories: dict[str, Story] = {}
        self.changed, self.completed, self.compared = 0, 0, 0
        self.table_records: dict[tuple[str, int], bytes] = {}
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
        self.compared += len(story.known)
        self.changed += any(self.reference.get(key) != rows for key, rows in story.known.items())
        if len(story.known) == len(self.reference):
            self.completed += 1

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
        """Up to four workers of one run, each while cells are computed."""
        story = self.fresh()
        run = Run(story, ENGINES[engine])
        for _ in range(self.chance.randint(1, 4)):
            run.wait_for(run.events + self.chance.randint(2, self.splits))
            workers = run.workers()
            if workers and run.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
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
        story, port = self.fresh(), free_port()
        with contextlib.ExitStack() as stack:
            scheduler, worker = stack.enter_context(cluster(port))
            run = Run(story, ["--scheduler", f"tcp://127.0.0.1:{port}"])
            run.wait_for(self.chance.randint(2, self.splits))
            scheduler.send_signal(self.chance.choice([signal.SIGKILL, signal.SIGTERM]))
            scheduler.wait()
            worker.kill()
            tally.injected += 1
            stack.enter_context(cluster(port))
            code, errors, _ = run.end()
        tally.expect(code == 0, f"exit code {code}: {errors[-300:]}")
        self.close(story, tally)

    def differing_versions(self, tally: Tally, engine: str) -> None:
        """A worker of another version computes nothing; with one of this version the same command goes on."""
        story, port = self.fresh(), free_port()
        with cluster(port, "--preload", str(OTHER_VERSION)):
            code, errors, _ = Run(story, ["--scheduler", f"tcp://127.0.0.1:{port}"]).end()
        tally.injected += 1
        tally.expect(code == 1, f"exit code {code} of a worker of another version: {errors[-300:]}")
        audit(story, tally)
        tally.expect(not story.known, f"{len(story.known)} records of another version")
        code, errors, _ = Run(story, ENGINES["local"]).end()
        tally.expect(code == 0, f"exit code {code}: {errors[-300:]}")
        self.close(story, tally)

    def read_only(self, tally: Tally, engine: str) -> None:
        """An ordinary user whose folder cannot be written: refused in words, and everything can be read."""
        source = self._fullest()
        if source is None or os.geteuid():
            return
        folder = Path(tempfile.mkdtemp())  # not below the soak's own, which only its user may enter
        shutil.copy(source.out / "store.sqlite", folder)
        before = (folder / "store.sqlite").read_bytes()
        os.chmod(folder, 0o555), os.chmod(folder / "store.sqlite", 0o444)
        tally.injected += 1
        os.seteuid(65534)
        try:
            refused = False
            try:
                Store(folder / "store.sqlite", write=True).close()
            except StoreError as error:
                refused = "cannot be" in str(error)
            tally.expect(refused, "a folder that cannot be written was not refused in words")
            found = finished(folder / "store.sqlite")
        finally:
            os.seteuid(0)
        tally.expect(all(source.known.get(key) == rows for key, rows in found.items()), "a record changed silently")
        tally.lost += len(source.known.keys() - found.keys()) if not wal(source) else 0
        tally.expect((folder / "store.sqlite").read_bytes() == before, "the store was changed")
        self.compared += len(found)
        os.chmod(folder, 0o755)
        shutil.rmtree(folder)

    def growing_file(self, tally: Tally, engine: str) -> None:
        """A table that grows while its cells run: a cell is computed on what was planned, or fails; never mixed."""
        folder = self.folder / "grows"  # always this one: a table's divisions come from its name, the folder included
        folder.mkdir(exist_ok=True)
        table = folder / "t.csv"
        table.write_text("a,b,target\n" + "".join(f"{i * 7 % 11},{i * i % 13},{i * 5 % 3 % 2}\n" for i in range(80)))
        whole, options = table.read_bytes(), ["--datasets", str(table)]
        if not self.table_records:
            clean = self.fresh()
            Run(clean, [*ENGINES["local"], *options]).end()
            self.table_records = by_split(clean.out / "store.sqlite")
        story = self.fresh()
        run = Run(story, [*ENGINES[engine], *options])
        run.wait_for(self.chance.randint(2, self.splits))
        with table.open("ab") as file:
            file.write(b"1,2,0\n2,3,1\n" * 5)
        code, errors, _ = run.end()
        tally.injected += 1
        tally.expect(code in (0, 1), f"exit code {code}: {errors[-300:]}")
        table.write_bytes(whole)
        code, errors, _ = Run(story, [*ENGINES[engine], *options]).end()
        tally.expect(code == 0, f"exit code {code} with the table as it was: {errors[-300:]}")
        found = by_split(story.out / "store.sqlite")
        tally.expect(
            bool(found) and found == self.table_records, "records differ from those of a table that did not grow"
        )
        self.compared += len(found)
        audit(story, tally)

    def _fullest(self) -> Story | None:
        return max((s for s in self.stories.values() if s.known), key=lambda s: len(s.known), default=None)

    def flip_bytes(self, tally: Tally, engine: str) -> None:
        """Up to eight bytes of a store, its WAL included: never a wrong record, never a word of nothing."""
        source = self._fullest()
        if source is None:
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
        self.compared += len(found)
        shutil.rmtree(folder)


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
    "versions differ": Soak.differing_versions,
    "read-only folder": Soak.read_only,
    "growing file": Soak.growing_file,
}
LONG = (
    "SIGKILL on local", "SIGTERM on local", "SIGINT on local", "flipped bytes", "SIGKILL on dask", "SIGTERM on dask",
    "SIGINT on dask", "flipped bytes", "worker killed on local", "worker killed on dask", "disk full on local",
    "second driver on local", "clock jumps on local", "scheduler restarted", "flipped bytes", "versions differ on dask",
    "read-only folder", "growing file on local", "SIGKILL on dask", "worker killed on dask", *["flipped bytes"] * 5,
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
    dask = sum(tally.injected for kind, tally in run.tallies.items() if "dask" in kind or "scheduler" in kind)
    wrong = [f"{kind}: {text}" for kind, tally in run.tallies.items() for text in tally.wrong]
    print(f"faults injected {total['injected']}, cells lost {total['lost']}, cells doubled {total['doubled']}, not as "
          f"promised {len(wrong)}; {run.completed} runs brought to their end, {run.changed} differ from the "
          f"undisturbed one; {run.compared} records compared, {dask} faults in Dask")  # fmt: skip
    print("\n".join(wrong))
    return not (total["lost"] or total["doubled"] or wrong or run.changed)
