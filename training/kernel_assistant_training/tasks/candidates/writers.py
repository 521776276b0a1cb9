"""Writes the sources of tasks in processes before they are needed, so that the many processes that run them do not wait
for a single writer."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from kernel_assistant_training.interrupts import belong_to_parent
from kernel_assistant_training.tasks.candidates.crawl import Unbuilt
from kernel_assistant_training.tasks.records import TaskText
from kernel_assistant_training.tasks.stream import StreamSource, Texts

Written = list[TaskText | Unbuilt | None]
#: Numbers that a process writes at a time, and chunks for each process that are ready or being written.
CHUNK, AHEAD = 8, 4


class Writers:
    """Writes the sources of the tasks of a stream in `processes` processes; with 0 they are written in the calling
    process. If a process is killed the run fails and has to be started again."""

    def __init__(self, source: StreamSource, processes: int) -> None:
        self._source, self._processes = source, processes
        self._pool: ProcessPoolExecutor | None = None

    def texts(self, numbers: Iterator[int]) -> Iterator[TaskText | Unbuilt | None]:
        """Yields the result for each number, in order: a task; or, if there is none, an Unbuilt with the reason or None
        (see `Texts.of`)."""
        if not self._processes:
            texts = Texts(self._source)
            yield from map(texts.of, numbers)
            return
        self._pool = ProcessPoolExecutor(self._processes, get_context("spawn"), _begin, (self._source,))
        chunks = iter(lambda: tuple(islice(numbers, CHUNK)), ())
        ready: deque[Future[Written]] = deque()
        while True:
            for chunk in islice(chunks, AHEAD * self._processes - len(ready)):
                ready.append(self._pool.submit(_write, chunk))
            if not ready:
                return
            yield from ready.popleft().result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


_texts: list[Texts] = []


def _begin(source: StreamSource) -> None:
    belong_to_parent()
    gc.set_threshold(100_000)
    _texts[:] = [Texts(source)]


def _write(numbers: tuple[int, ...]) -> Written:
    return [_texts[0].of(number) for number in numbers]
