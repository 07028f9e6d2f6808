"""Fuzzing: mutate the bytes of a corpus and pass them to every reader.

    python -m gate.fuzz --inputs 1000000 --state fuzz.json     # the same command continues after an interruption
    python -m gate.fuzz --only csv --first 123 --inputs 1      # repeats a finding

Each kind has files in ``corpus/<kind>`` and a reader in :mod:`gate.fuzz_targets`. An input is made from its kind and
number. Inputs run in forked processes, some hundred in each, with a limit of the address space and ten seconds of
processor time for each input. A crash, a hang, an undocumented error or memory use beyond the limit is a finding.
Findings are printed, and the exit code is 1 if there are any.
"""

import argparse
import faulthandler
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from closecall._budget import LIMIT
from closecall._files import whole_file

CORPUS = Path(__file__).with_name("corpus")
#: Seconds of processor time for one input, and of real time, because a busy machine is not a hang.
SECONDS, WAITING = 10, 300
#: Address space beyond that of the process: for what an input may create, and for temporary objects.
ROOM = 4 * LIMIT
OUTCOMES = ("ok", "refused", "finding")
#: Texts with a meaning in one of the formats.
TOKENS = (
    b"\0", b'"', b",", b";", b"\n", b"\r", b"\t", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"nan", b"NA", b"?",
    b"inf", b"1e999", b"5e-324", b"-1", b"1_000", b"0x10", b"2020-01-01", b"target", b"\xe2\x80\xa8", b"</script>",
    b"{", b"[", b"]", b"}", b":", b"null", b"true", b"0", b"4294967295", b"18446744073709551616",
    b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY", b"|O", b"<U1", b"(1000000000,)", b"PAR1", b"\x1f\x8b",
    b"=cmd", b"../", b"\x1b[31m", b"\xe2\x80\xae", b"__class__", b"kind", b"array", b"a" * 300, b"9" * 400,
)  # fmt: skip
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """Return the bytes with one to six changes: bits, numbers, tokens, pieces of another file, repeats, cuts."""
    raw = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(raw) + 1)
        kind = chance.randrange(8)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(raw):
            raw[at] = chance.randrange(256)
        elif kind == 2:
            size = chance.choice((2, 4))
            number = chance.choice(_NUMBERS) & (256**size - 1)
            raw[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
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


@cache
def corpus(kind: str) -> list[bytes]:
    """Return the files of a kind in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / kind).glob("*"))]


@dataclass(frozen=True)
class Target:
    """A reader, the errors it may raise, how many of a thousand inputs it gets, and how inputs are made from files."""

    read: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    weight: int
    change: Callable[[random.Random, bytes, bytes], bytes] = mutate

    def made(self, kind: str, number: int) -> bytes:
        """Return the input with this number; the first inputs are the files themselves."""
        files = corpus(kind)
        if number < len(files):
            return files[number]
        chance = random.Random(f"{kind} {number}")
        return self.change(chance, chance.choice(files), chance.choice(files))

    def outcome(self, data: bytes) -> tuple[str, str]:
        """Return the outcome of one input and the message of a finding."""
        try:
            self.read(data)
        except self.allowed as error:
            silent = len(str(error)) < 15
            return ("finding", f"{type(error).__name__} says nothing: {error}") if silent else ("refused", "")
        except MemoryError:
            return "finding", "memory beyond the limit"
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return "finding", f"{type(error).__name__}: {str(error)[:200]} ({Path(where.filename).name}:{where.lineno})"
        return "ok", ""


@dataclass
class Tally:
    """The outcomes of the inputs of a kind, and the number of the next input."""

    next: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    findings: list[str] = field(default_factory=list)
    peak: int = 0
    slowest: float = 0.0
    seconds: float = 0.0


def _run_child(kind: str, target: Target, numbers: range, pipe: int) -> None:
    """Run inputs and write a line about each; a crash ends only this process."""
    for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # the parent reports how the process ended
    warnings.simplefilter("error")
    with os.fdopen(pipe, "w", buffering=1) as out:
        for number in numbers:
            data = target.made(kind, number)
            signal.setitimer(signal.ITIMER_REAL, WAITING)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            begun = time.process_time()
            found = target.outcome(data)
            out.write(json.dumps([*found, time.process_time() - begun]) + "\n")


def run_batch(kind: str, target: Target, tally: Tally, count: int) -> None:
    """Run the next inputs of a kind in a child, up to the first that ends it, and add up the outcomes."""
    begun, (reader, writer) = time.perf_counter(), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            _run_child(kind, target, range(tally.next, tally.next + count), writer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answers:
        lines = [json.loads(line) for line in answers]
    _, status, usage = os.wait4(pid, 0)
    if len(lines) < count:
        how = os.waitstatus_to_exitcode(status)
        slow = how in (-signal.SIGALRM, -signal.SIGPROF)
        what = f"no end after {SECONDS} s of work, or {WAITING} s" if slow else f"the process ended with {how}"
        lines.append(["finding", what, 0.0])
    for outcome, message, took in lines:
        tally.counts[outcome] += 1
        tally.slowest = max(tally.slowest, took)
        tally.findings += [f"{kind} {tally.next}: {message}"] if message else []
        tally.next += 1
    tally.peak = max(tally.peak, usage.ru_maxrss * 1024)
    tally.seconds += time.perf_counter() - begun


def report(tallies: dict[str, Tally]) -> bool:
    """Print a line for each kind, and the findings; return whether there were none."""
    print(f"{'kind':12}{'inputs':>9}{'ok':>9}{'refused':>9}{'findings':>9}{'slowest':>9}{'peak':>9}{'seconds':>9}")
    for kind, tally in tallies.items():
        counts = "".join(f"{tally.counts[name]:9}" for name in OUTCOMES)
        print(f"{kind:12}{sum(tally.counts.values()):9}{counts}{tally.slowest:7.2f} s{tally.peak >> 20:6} MB"
              f"{tally.seconds:9.0f}")  # fmt: skip
    findings = [each for tally in tallies.values() for each in tally.findings]
    print(*findings[:50], f"{len(findings)} findings", sep="\n")
    return not findings


def main() -> int:
    from gate.fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all")
    parser.add_argument("--only", choices=TARGETS, action="append", help="this kind; may be repeated")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input of each kind")
    parser.add_argument("--state", type=Path, help="a file for the counts")
    parser.add_argument("--write", type=Path, help="write the first input to this file and stop")
    given = parser.parse_args()
    kinds = {kind: TARGETS[kind] for kind in given.only or TARGETS}
    if given.write:
        ((kind, target),) = kinds.items()
        given.write.write_bytes(target.made(kind, given.first))
        return 0
    tallies = {kind: Tally(given.first) for kind in kinds}
    if given.state and given.state.exists():
        tallies |= {kind: Tally(**counts) for kind, counts in json.loads(given.state.read_text()).items()}
    total = sum(target.weight for target in kinds.values())
    for kind, target in kinds.items():
        last = given.first + round(given.inputs * target.weight / total)
        while tallies[kind].next < last:
            run_batch(kind, target, tallies[kind], min(last - tallies[kind].next, max(10, 4 * target.weight)))
            if given.state:
                with whole_file(given.state) as file:
                    file.write(json.dumps({kind: vars(tally) for kind, tally in tallies.items()}).encode())
    return int(not report(tallies))


if __name__ == "__main__":
    sys.exit(main())
