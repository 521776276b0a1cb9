"""Rows of tokens from processes that make conversations while something else uses them.

Each process sends blocks of rows through a pipe (some megabytes a second in all); a thread reads them into one pool.
Fresh rows are given out first. Where there are too few, a batch is filled up with rows that were given out before.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kernel_assistant.errors import InternalError
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.packing import Packer, Rows
from kernel_assistant_training.source import Source
from kernel_assistant_training.tokenizer import VOCABULARY, load

_BLOCK = 16  # rows sent at once


@dataclass(frozen=True)
class StreamOptions:
    """`keep` rows are kept to be drawn again. `processes` times `seed` never meet: each has seeds of its own."""

    sources: tuple[Source, ...]
    processes: int = 14
    length: int = 2048
    keep: int = 400_000
    seed: int = 0


@dataclass
class Counts:
    """What came from the processes, and what was given out."""

    conversations: int = 0
    different: int = 0
    left_out: int = 0
    fresh_rows: int = 0
    fresh_tokens: int = 0
    repeated_rows: int = 0
    ended_processes: int = 0


class Stream:
    """A context manager: the processes end with it."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._ids = np.zeros((options.keep, options.length), np.uint16)
        self._flags = np.zeros((options.keep, options.length), np.uint8)
        # Rows written since the beginning, and given out once; row n lies at n % keep.
        self._written = self._given = 0
        self._hashes: set[int] = set()
        self._counts = Counts()
        self._changed = threading.Condition()
        self._random = np.random.default_rng(options.seed)
        self._closing = False
        context = get_context("spawn")  # a process that has CUDA cannot be forked
        ends = [context.Pipe(duplex=False) for _ in range(options.processes)]
        self._readers: list[Connection] = [reader for reader, _ in ends]
        self._processes = [
            context.Process(target=_make, args=(writer, options, number), daemon=True)
            for number, (_, writer) in enumerate(ends)
        ]
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._writers = [writer for _, writer in ends]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        for writer in self._writers:
            writer.close()  # the process has its own: when it ends, its pipe does
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for process in self._processes:
            process.terminate()
            process.join()
        self._thread.join()

    @property
    def counts(self) -> Counts:
        return self._counts

    @property
    def _all_ended(self) -> bool:
        return self._counts.ended_processes == self._options.processes

    @property
    def waiting(self) -> int:
        """Rows that were not given out yet."""
        return self._written - self._given

    def take(self, count: int) -> Rows:
        """`count` rows, fresh ones first, in no order. Waits only until there are `count` in all.

        Raises InternalError where all processes have ended: one that does is counted, its message is on stderr.
        """
        with self._changed:
            while self._written < count and not self._all_ended:
                self._changed.wait()
            if self._all_ended:
                raise InternalError("all processes that make conversations have ended", "see their messages")
            fresh = min(count, self.waiting)
            kept = min(self._written, self._options.keep)
            places = np.concatenate(
                [
                    np.arange(self._given, self._given + fresh) % self._options.keep,
                    self._random.integers(0, kept, count - fresh),
                ]
            )
            self._given += fresh
            rows = Rows(self._ids[places], self._flags[places])
            self._counts.fresh_rows += fresh
            self._counts.repeated_rows += count - fresh
            self._counts.fresh_tokens += int(np.count_nonzero(rows.flags[:fresh]))
            self._changed.notify_all()
        return rows

    def _read(self) -> None:
        """The thread: stops reading while the pool is full of rows that nobody has had, and so the processes wait."""
        open_pipes = list(self._readers)
        while open_pipes:
            with self._changed:
                while self.waiting > self._options.keep - _BLOCK and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
            for pipe in wait(open_pipes, timeout=0.2):
                assert isinstance(pipe, Connection)
                try:
                    block: _Sent = pipe.recv()
                except (EOFError, OSError):
                    open_pipes.remove(pipe)
                    with self._changed:
                        self._counts.ended_processes += 1
                        self._changed.notify_all()
                    continue
                self._keep(block)

    def _keep(self, block: _Sent) -> None:
        with self._changed:
            count = len(block.rows)
            places = np.arange(self._written, self._written + count) % self._options.keep
            self._ids[places], self._flags[places] = block.rows.ids, block.rows.flags
            self._written += count
            self._hashes.update(block.hashes.tolist())
            self._counts.conversations += len(block.hashes)
            self._counts.different = len(self._hashes)
            self._counts.left_out += block.left_out
            self._changed.notify_all()


@dataclass(frozen=True)
class _Sent:
    """Rows, 64 bits of the hash of each conversation, and how many were too long."""

    rows: Rows
    hashes: NDArray[np.uint64]
    left_out: int


def _make(pipe: Connection, options: StreamOptions, number: int) -> None:
    """A process: its sources in turn."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner ends it
    os.nice(10)
    encoder, packer = Encoder(load(VOCABULARY)), Packer(options.length)
    seed = options.seed * 1_000_003 + number
    running = [source(seed) for source in options.sources]
    rows: list[tuple[NDArray[np.uint16], NDArray[np.uint8]]] = []
    hashes: list[int] = []
    try:
        while True:
            for conversations in running:
                messages = next(conversations)
                hashes.append(_hash(messages))
                row = packer.add(encoder.encode(messages))
                if row is not None:
                    rows.append(row)
            if len(rows) >= _BLOCK:
                ids, flags = (np.stack(part) for part in zip(*rows, strict=True))
                pipe.send(_Sent(Rows(ids, flags), np.array(hashes, np.uint64), packer.left_out))
                rows, hashes, packer.left_out = [], [], 0
    except BrokenPipeError:
        return


def _hash(messages: Sequence[Message]) -> int:
    """Of graphs and answers: the last line of a task has sizes and figures, which are hardly ever the same twice."""
    text = "\0".join(
        message.content.rpartition("\n")[0] if message.role == "user" else message.content for message in messages[1:]
    )
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
