"""Torture: every attack on numbers, for as long as you like.

    python -m gate.torture --seconds 300
    python -m gate.torture --short

Each attack gets the same time. An input is *ok* (solved) or *refused* with a message that says what to do. Anything
else is a finding: another error, a warning, a silent NaN, or a mismatch with the reference solver. The exit code is 1
if there are any findings. The seed of a finding repeats it: ``--only <attack> --seed <seed> --seconds 0``.
"""

import argparse
import resource
import time
from collections import Counter

from gate import torture_network, torture_numbers
from gate.torture_numbers import Attack, Refused

ATTACKS: dict[str, Attack] = {**torture_numbers.ATTACKS, **torture_network.ATTACKS}


def outcome(attack: Attack, seed: int) -> str:
    """Return ``ok``, ``refused`` or the message of a finding."""
    try:
        attack(seed)
    except Refused:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:500]}"
    return "ok"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="in all, shared out equally")
    parser.add_argument("--short", action="store_true", help="25 seconds, for every check of the project")
    parser.add_argument("--only", choices=ATTACKS, action="append", help="this attack; may be repeated")
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first seed; the tests use those from 0")
    given = parser.parse_args()
    names = given.only or list(ATTACKS)
    share, findings = (25 if given.short else given.seconds) / len(names), 0
    for name in names:
        begun, counts, seed = time.perf_counter(), Counter[str](), given.seed
        while seed == given.seed or time.perf_counter() - begun < share:
            found = outcome(ATTACKS[name], seed)
            if found not in ("ok", "refused"):
                print(f"{name}, seed {seed}: {found}", flush=True)
                found = "findings"
            counts[found] += 1
            seed += 1
        findings += counts["findings"]
        print(f"{name:24}{counts['ok']:6} ok{counts['refused']:6} refused{counts['findings']:6} findings", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    return int(findings > 0)


if __name__ == "__main__":
    raise SystemExit(main())
