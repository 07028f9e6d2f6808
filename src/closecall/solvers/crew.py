"""Threads that share the parts of a batch and stop together."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .._names import Array


class Crew:
    """A number of threads; ``stopped`` is set when one of them fails or Ctrl-C arrives.

    Examples
    --------
    >>> Crew(2).map(lambda part: int(part.sum()), [np.arange(3), np.arange(4)])
    [3, 6]
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.stopped = threads, threading.Event()

    def map(self, task: Callable[[Array], Any], parts: list[Array]) -> list[Any]:
        """The result for each part, in order; the first failure is raised when all have stopped."""
        if self.threads == 1 or len(parts) == 1:
            return [task(part) for part in parts]
        results: list[Any] = [None] * len(parts)
        failures: list[BaseException] = []
        todo = deque(enumerate(parts))

        def work() -> None:
            with np.errstate(all="ignore"), contextlib.suppress(IndexError):  # NumPy's error state is a thread's own
                while not self.stopped.is_set():
                    number, part = todo.popleft()
                    try:
                        results[number] = task(part)
                    except BaseException as error:
                        failures.append(error)
                        self.stopped.set()  # the others see it at their next beat

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.threads, os.cpu_count() or 1))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    # Not for ever: a signal that another thread received does not wake this one, which must answer it.
                    thread.join(0.1)
        except BaseException:
            self.stopped.set()  # Ctrl-C reaches the main thread only; the workers see this flag
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            raise
        if failures:
            raise failures[0]
        return results
