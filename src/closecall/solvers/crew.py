"""Threads that work through a common list of tasks and stop together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np


class Crew:
    """A group of threads; ``stopped`` is set when one of them fails or when Ctrl-C is pressed.

    Examples
    --------
    >>> Crew(2).map(lambda part: int(part.sum()), [np.arange(3), np.arange(4)])
    [3, 6]
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.stopped = threads, threading.Event()

    def map(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return the results of all parts in order; raise the first exception once all threads have stopped."""
        if self.threads == 1 or len(parts) == 1:
            return [task(part) for part in parts]

        def work(part: Any) -> Any:
            try:
                with np.errstate(all="ignore"):  # each thread has its own error state
                    return None if self.stopped.is_set() else task(part)
            except BaseException:
                self.stopped.set()  # the others check it before each part
                raise

        with ThreadPoolExecutor(min(self.threads, os.cpu_count() or 1)) as pool:  # waits for its threads
            futures = [pool.submit(work, part) for part in parts]
            try:
                # The timeout is needed because this thread must handle signals, but is not woken if another thread
                # receives one.
                while wait(futures, timeout=0.1).not_done:
                    pass
            except BaseException:
                self.stopped.set()  # Ctrl-C reaches the main thread only; the workers check this flag
                raise
        return [future.result() for future in futures]
