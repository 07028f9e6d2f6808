"""Fuzzing: mutated bytes of a corpus into every reader; a crash, a hang, an undocumented error or too much memory.

    python -m gate.fuzz --inputs 1000000 --state fuzz.json
    python -m gate.fuzz --short

Each kind has files in ``corpus/<kind>`` and a reader of :mod:`gate.fuzz_targets` that takes bytes. Inputs are
made from a number, so that ``--only <kind> --first <number> --inputs 1`` repeats a finding. They run in children that
are forked for some hundred of them, with a limit of the address space and ten seconds of processor time for each: what
kills a child is found by the number at which it stopped. Findings are printed, and the exit code is 1 if there is any.
``--state`` keeps the counts: the same command then goes on.
"""

import argparse
import faulthandler
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from closecall._budget import LIMIT

CORPUS = Path(__file__).with_name("corpus")
#: Processor seconds for one input, and seconds in all: a busy machine is no hang.
SECONDS, WAITING = 10, 300
#: Bytes beyond what the process has: what an input may make, and what is made on the way.
ROOM = 4 * LIMIT
OUTCOMES = ("ok", "refused", "finding")
#: Pieces that mean something to one of the formats.
TOKENS = (
    b"\0", b'"', b",", b";", b"\n", b"\r", b"\t", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"nan",
    b"inf", b"1e999", b"-1",
    b"{", b"[", b"]", b"}", b":", b"null", b"true", b"0", b"4294967295", b"18446744073709551616",
    b"PK\x01\x02", b"PK\x03\x04",
    b"PK\x05\x06", b"\x93NUMPY", b"|O", b"<U1", b"(1000000000,)", b"PAR1", b"\x1f\x8b", b"SQLite format 3\0",
    b"CREATE TRIGGER",
    b"=cmd", b"../", b"\x1b[31m", b"\xe2\x80\xae", b"__class__", b"kind", b"array", b"a" * 300, b"9" * 400,
)  # fmt: skip
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """The bytes with one to six changes: bits, numbers, tokens, pieces of another file, repeats, cuts."""
    raw = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(raw) + 1)
        kind = chance.randrange(8)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(raw):
            raw[at] = chance.randrange(256)
        elif kind == 2:
            number = struct.pack(chance.choice(("<I", ">I", "<H", ">H")), 0)
            raw[at : at + len(number)] = (chance.choice(_NUMBERS) & (256 ** len(number) - 1)).to_bytes(
                len(number), chance.choice(("little", "big"))
            )
        elif kind == 3:
            raw[at:at] = chance.choice(TOKENS)
        elif kind == 4:
            token = chance.choice(TOKENS)
            raw[at : at + len(token)] = token
        elif kind == 5 and other:
            begin = chance.randrange(len(other))
            raw[at:at] = other[begin : begin + chance.randrange(1, 64)]
        elif kind == 6:
            raw[at:at] = raw[at : at + chance.randrange(1, 40)] * chance.randrange(1, 5)
        else:
            del raw[at : at + (chance.randrange(1, 30) if chance.random() < 0.9 else len(raw))]
    return bytes(raw)


def corpus(kind: str) -> list[bytes]:
    """The files of a kind, in order of their names; at least one."""
    files = [path.read_bytes() for path in sorted((CORPUS / kind).glob("*"))]
    if not files:
        raise FileNotFoundError(f"{CORPUS / kind} is empty; write it by python -m gate.fuzz_targets")
    return files


#: Makes an input of a file and another one.
Change = Callable[[random.Random, bytes, bytes], bytes]


def made(kind: str, number: int, files: list[bytes], change: Change = mutate) -> bytes:
    """The input of that number; the first ones are the files themselves."""
    if number < len(files):
        return files[number]
    chance = random.Random(f"{kind} {number}")
    return change(chance, chance.choice(files), chance.choice(files))


@dataclass
class Tally:
    """What became of the inputs of a kind."""

    next: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    peak: int = 0
    slowest: float = 0.0
    seconds: float = 0.0


def try_one(read: Callable[[bytes], None], allowed: tuple[type[Exception], ...], data: bytes) -> tuple[str, str]:
    """Outcome and message of one input."""
    try:
        read(data)
    except allowed as error:
        if len(str(error)) < 15:
            return "finding", f"{type(error).__name__} says nothing: {error}"
        return "refused", ""
    except MemoryError:
        return "finding", "memory beyond the limit"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "finding", f"{type(error).__name__}: {str(error)[:200]} ({Path(where.filename).name}:{where.lineno})"
    return "ok", ""


def _child(kind: str, files: list[bytes], target: Any, numbers: range, place: mmap.mmap, pipe: int) -> None:
    """Run inputs and write what became of them; only its process ends when something goes very wrong."""
    for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # the parent says what ended it
    warnings.simplefilter("error")
    lines = []
    for number in numbers:
        place[:8] = struct.pack("<q", number)
        data = made(kind, number, files, target.change)
        signal.setitimer(signal.ITIMER_REAL, WAITING)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        begun = time.process_time()
        outcome, message = try_one(target.read, target.allowed, data)
        took = time.process_time() - begun
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        lines.append([number, outcome, message, took])
    with os.fdopen(pipe, "w") as out:
        json.dump(lines, out)


def run_batch(kind: str, target: Any, tally: Tally, count: int) -> None:
    """Run the next inputs of a kind in a child and add up what became of them."""
    place, (reader, writer), files = mmap.mmap(-1, 8), os.pipe(), corpus(kind)
    first = tally.next
    place[:8] = struct.pack("<q", first)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            _child(kind, files, target, range(first, first + count), place, writer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answers:
        text = answers.read()
    _, status, usage = os.wait4(pid, 0)
    tally.peak = max(tally.peak, usage.ru_maxrss * 1024)
    if os.waitstatus_to_exitcode(status) == 0 and text:
        for number, outcome, message, took in json.loads(text):
            tally.counts[outcome] += 1
            tally.slowest = max(tally.slowest, took)
            tally.findings += [f"{kind} {number}: {message}"] if message else []
        tally.next = first + count
        return
    number = struct.unpack("<q", place[:8])[0]
    if number > first:  # those before it again, without it
        run_batch(kind, target, tally, number - first)
    how = os.waitstatus_to_exitcode(status)
    slow = how in (-signal.SIGALRM, -signal.SIGPROF)
    what = f"no end after {SECONDS} s of work, or {WAITING} s" if slow else f"the process ended with {how}"
    tally.counts["finding"] += 1
    tally.findings.append(f"{kind} {number}: {what}")
    tally.next = number + 1


def fuzz(kinds: dict[str, Any], inputs: int, tallies: dict[str, Tally], save: Callable[[], None]) -> None:
    """Run so many inputs in all, shared out by the weights of the kinds."""
    total = sum(target.weight for target in kinds.values())
    goals = {kind: tallies[kind].next + round(inputs * target.weight / total) for kind, target in kinds.items()}
    while True:
        left = {kind: goals[kind] - tallies[kind].next for kind in kinds if tallies[kind].next < goals[kind]}
        if not left:
            return
        for kind, count in left.items():
            begun = time.perf_counter()
            run_batch(kind, kinds[kind], tallies[kind], min(count, max(10, 4 * kinds[kind].weight)))
            tallies[kind].seconds += time.perf_counter() - begun
        save()


def report(tallies: dict[str, Tally]) -> bool:
    """Print a line for each kind and the findings; whether there was none."""
    print(f"{'kind':12}{'inputs':>9}{'ok':>9}{'refused':>9}{'findings':>9}{'slowest':>9}{'peak':>9}{'seconds':>9}")
    for kind, tally in tallies.items():
        counts = "".join(f"{tally.counts[name]:9}" for name in OUTCOMES)
        print(f"{kind:12}{sum(tally.counts.values()):9}{counts}{tally.slowest:7.2f} s{tally.peak >> 20:6} MB"
              f"{tally.seconds:9.0f}")  # fmt: skip
    findings = [each for tally in tallies.values() for each in tally.findings]
    inputs = sum(sum(tally.counts.values()) for tally in tallies.values())
    print(f"{inputs} inputs, {len(findings)} findings, peak memory {max(t.peak for t in tallies.values()) >> 20} MB")
    print("\n".join(findings[:50]))
    return not findings


def main() -> int:
    from gate.fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all")
    parser.add_argument("--only", choices=TARGETS, action="append", help="this kind; may be repeated")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input of each kind")
    parser.add_argument("--short", action="store_true", help="some seconds, for every check of the project")
    parser.add_argument("--state", type=Path, help="where the counts are kept, to go on later")
    parser.add_argument("--write", type=Path, help="write the first input here and stop")
    given = parser.parse_args()
    kinds = {kind: TARGETS[kind] for kind in given.only or TARGETS}
    if given.write:
        (kind,) = kinds
        given.write.write_bytes(made(kind, given.first, corpus(kind), kinds[kind].change))
        return 0
    tallies = {kind: Tally(given.first) for kind in kinds}
    done = 0
    if given.state and given.state.exists():
        for kind, content in json.loads(given.state.read_text()).items():
            if kind in tallies:
                tallies[kind] = Tally(**{**content, "counts": Counter(content["counts"])})
        done = sum(sum(tally.counts.values()) for tally in tallies.values())

    def save() -> None:
        if given.state:
            part = given.state.with_suffix(".part")
            part.write_text(json.dumps({kind: vars(tally) for kind, tally in tallies.items()}))
            os.replace(part, given.state)

    fuzz(kinds, (1500 if given.short else given.inputs) - done, tallies, save)
    return int(not report(tallies))


if __name__ == "__main__":
    sys.exit(main())
