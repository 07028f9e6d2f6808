"""Threads that share a list of parts and stop together."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Crew:
    """A number of threads; ``stopped`` is set when one of them fails or Ctrl-C arrives.

    Examples
    --------
    >>> Crew(2).map(lambda part: int(part.sum()), [np.arange(3), np.arange(4)])
    [3, 6]
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.stopped = threads, threading.Event()

    def map(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return the result for each part, in order; raise the first failure when all threads have stopped."""
        if self.threads == 1 or len(parts) == 1:
            return [task(part) for part in parts]
        results: dict[int, Any] = {}
        failures: list[BaseException] = []
        todo = deque(enumerate(parts))

        def work() -> None:
            with np.errstate(all="ignore"), contextlib.suppress(IndexError):  # each thread has its own error state
                while not self.stopped.is_set():
                    number, part = todo.popleft()
                    try:
                        results[number] = task(part)
                    except BaseException as error:
                        failures.append(error)
                        self.stopped.set()  # the others check it before each part

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.threads, os.cpu_count() or 1))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    # With a timeout: a signal received by another thread does not wake this one, which must handle it.
                    thread.join(0.1)
        except BaseException:
            self.stopped.set()  # Ctrl-C reaches the main thread only; the workers check this flag
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            raise
        if failures:
            raise failures[0]
        return [results[number] for number in range(len(parts))]
