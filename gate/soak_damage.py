"""Random bytes of a store changed: whether it is noticed, and how many records ``closecall salvage`` saves."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np

from gate.fault_helpers import contents, fill
from reproduction.run.salvage import salvage
from reproduction.run.store import StoreError

RECORDS = 120


def damage(tries: int, seed: int) -> bool:
    """Change one to eight bytes of a store of 120 records, so many times; print what became of the records."""
    chance = random.Random(seed)
    saved, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        known = fill(path, RECORDS)
        whole = path.read_bytes()
        for _ in range(tries):
            content = bytearray(whole)
            for _ in range(chance.randint(1, 8)):
                content[chance.randrange(len(content))] ^= chance.randint(1, 255)
            path.write_bytes(content)
            try:
                found = contents(path)
            except StoreError:
                saved.append(salvage(path).kept)
                found = contents(path)
            wrong += not found.items() <= known.items()
            for stale in Path(folder).glob("store.sqlite*"):
                stale.unlink()
    print(
        f"stores with changed bytes {tries}, noticed {len(saved)}, wrong records taken {wrong}; of {RECORDS} records "
        f"salvage saved {np.mean(saved or [RECORDS]):.1f} on average, {min(saved, default=RECORDS)} at least"
    )
    return not wrong
