"""Torture: every attack of ``gate`` on numbers, files, stores and the command line, as long as you like.

    python -m gate.torture --seconds 300
    python -m gate.torture --short

Each target gets the same time. An input is *ok* (read, solved) or *refused* with a message that says what to do; what
else can happen is a finding: a crash (any other error, a warning, a traceback), a silent NaN, or a mismatch (with the
reference solver, a wrong shape, something that a page could run). The exit code is 1 if there is any. A finding's seed
repeats it: ``--only <target> --seed <seed> --seconds 0``.
"""

import argparse
import json
import logging
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from gate import hostile_files, hostile_stores, torture_network, torture_numbers
from gate.torture_numbers import Finding, Refused

Attack = Callable[[int], str]
TARGETS: dict[str, Attack] = {
    **torture_numbers.ATTACKS,
    **torture_network.ATTACKS,
    **hostile_files.ATTACKS,
    **hostile_stores.ATTACKS,
}
COLUMNS = ("inputs", "ok", "refused", "crashes", "silent NaN", "mismatches")
_SHOWN = 5


def outcome(attack: Attack, seed: int) -> tuple[str, str]:
    """What became of a seed, and the message of a finding."""
    try:
        attack(seed)
    except Refused:
        return "refused", ""
    except Finding as finding:
        text = str(finding)
        if "silent NaN" in text or "a NaN among" in text:
            return "silent NaN", text
        return ("crashes" if isinstance(finding.__cause__, BaseException) or "exit" in text else "mismatches"), text
    except Exception as error:  # in the attack itself, or where it expects nothing
        return "crashes", f"{type(error).__name__}: {error}"
    return "ok", ""


def torture(attack: Attack, seconds: float, first: int) -> Iterator[tuple[int, str, str]]:
    """Seed, outcome and message of one input after the other until the time is up; at least one."""
    end, seed = time.perf_counter() + seconds, first
    while True:
        yield seed, *outcome(attack, seed)
        seed += 1
        if time.perf_counter() >= end:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="in all, shared out equally")
    parser.add_argument("--short", action="store_true", help="half a minute, for every check of the project")
    parser.add_argument("--only", choices=TARGETS, action="append", help="this target; may be repeated")
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first seed; the tests take those from 0 on")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each target")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    names = given.only or list(TARGETS)
    share = (25 if given.short else given.seconds) / len(names)
    total: Counter[str] = Counter()
    if not given.json:
        print(f"{'target':24}" + "".join(f"{name:>11}" for name in COLUMNS) + f"{'seconds':>9}")
    for name in names:
        begun, counts, messages = time.perf_counter(), Counter({"inputs": 0}), []
        for seed, kind, text in torture(TARGETS[name], share, given.seed):
            counts.update(["inputs", kind])
            messages += [f"  seed {seed}: {kind}: {text[:500]}"] if text else []
        total.update(counts)
        spent = time.perf_counter() - begun
        if given.json:
            print(json.dumps({"target": name, **{each: counts[each] for each in COLUMNS}, "seconds": round(spent, 1)}))
        else:
            print(f"{name:24}" + "".join(f"{counts[each]:>11}" for each in COLUMNS) + f"{spent:>9.1f}", flush=True)
        for message in messages[:_SHOWN]:
            print(message, file=sys.stderr, flush=True)
    if not given.json:
        print(f"{'all':24}" + "".join(f"{total[each]:>11}" for each in COLUMNS))
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    return int(any(total[kind] for kind in ("crashes", "silent NaN", "mismatches")))


if __name__ == "__main__":
    raise SystemExit(main())
