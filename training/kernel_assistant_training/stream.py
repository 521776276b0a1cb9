"""A stream of rows of tokens, made by processes while the trainer uses the rows.

Each process writes rows into its own ring buffer in shared memory and then increments a counter; a busy consumer does
not block it. New rows are given out first. If there are too few new rows, earlier rows are given out again.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Self

import numpy as np

from kernel_assistant.errors import InternalError
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.packing import PackedRows, Packer
from kernel_assistant_training.pool import SharedRows, SharedRowsShape
from kernel_assistant_training.reply import MOST_REPLY
from kernel_assistant_training.source import Source
from kernel_assistant_training.tokenizer import VOCABULARY, load

#: Seconds between two checks.
_PAUSE = 0.005


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream. `processes` processes draw conversations from `sources` and make rows of `length`
    tokens. The last `keep` rows are kept, so that they can be drawn again. The seed of each process depends on `seed`
    and on the process's number. With `steady` no row is drawn again and every process contributes the same number of
    rows, so that each run has the same rows."""

    sources: tuple[Source, ...]
    processes: int = 14
    length: int = 2048
    keep: int = 400_000
    seed: int = 0
    steady: bool = False


@dataclass
class Counts:
    """Counts of the conversations that the processes made and of those that were too long (`left_out`), and of the rows
    that the trainer took: `fresh_rows` for the first time, `repeated_rows` again."""

    conversations: int = 0
    left_out: int = 0
    fresh_rows: int = 0
    fresh_tokens: int = 0
    repeated_rows: int = 0
    ended_processes: int = 0


class Stream:
    """A stream of rows that several processes make. As a context manager it starts the processes and ends them."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._random = np.random.default_rng(options.seed)
        self._counts = Counts()
        self._pool = SharedRows(SharedRowsShape(options.processes, options.keep // options.processes, options.length))
        context = get_context("spawn")  # a process that uses CUDA cannot be forked
        self._processes = [
            context.Process(target=_make, args=(self._pool.name, self._pool.shape, options, number), daemon=True)
            for number in range(options.processes)
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *ended: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        self._pool.close()

    @property
    def counts(self) -> Counts:
        """The counts of conversations and rows so far."""
        self._counts.conversations = int(self._pool.conversations.sum())
        self._counts.left_out = int(self._pool.left_out.sum())
        self._counts.ended_processes = sum(not process.is_alive() for process in self._processes)
        return self._counts

    @property
    def waiting(self) -> int:
        """The number of rows that were made but never taken."""
        return int((self._pool.written - self._pool.given).sum())

    def different(self) -> int:
        """Returns the number of different conversations among those whose hashes are kept. Conversations that differ
        only in the last line of the prompt count as one."""
        return self._pool.different()

    def take(self, count: int) -> PackedRows:
        """Takes `count` rows, rows that were not taken before first, in no particular order. Waits until there are
        `count` rows, new and old together; with `steady`, until there are enough new rows. Raises InternalError if all
        processes have ended, or, while it waits with `steady`, if any process has. Otherwise ended processes are only
        counted; their messages are on stderr."""
        self._check(any)
        while not self._there(count):
            self._check(all if self._options.steady else any)
            time.sleep(_PAUSE)
        fresh, fresh_count = self._pool.even(count) if self._options.steady else self._pool.fresh(count)
        again = self._pool.again(count - fresh_count, self._random)
        rows = self._pool.rows(np.concatenate([fresh, again]))
        # Only now may the rows be overwritten.
        self._pool.give(fresh)
        self._counts.fresh_rows += fresh_count
        self._counts.repeated_rows += count - fresh_count
        self._counts.fresh_tokens += int(np.count_nonzero(rows.flags[:fresh_count]))
        return rows

    def _check(self, enough: Callable[[Iterable[bool]], bool]) -> None:
        """Raises InternalError if too few processes are alive: none, if `enough` is `any`; not all, if `enough` is
        `all`. Otherwise old rows would be repeated for ever without anybody noticing."""
        alive = [process.is_alive() for process in self._processes]
        if not enough(alive):
            ended = "all" if not any(alive) else f"{alive.count(False)} of {len(alive)}"
            raise InternalError(f"{ended} processes that make conversations have ended", "see their messages")

    def _there(self, count: int) -> bool:
        if self._options.steady:
            return int((self._pool.written - self._pool.given).min()) * self._options.processes >= count
        return int(self._pool.written.sum()) >= count


def _make(name: str, shape: SharedRowsShape, options: StreamOptions, number: int) -> None:
    """Runs in each process: writes rows of conversations, drawn from the sources in turn, into the shared memory
    `name`, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner ends it
    os.nice(10)
    parent, pool = os.getppid(), SharedRows(shape, name)
    encoder, packer = Encoder(load(VOCABULARY)), Packer(options.length)
    running = [source(options.seed * 1_000_003 + number) for source in options.sources]
    while os.getppid() == parent:
        for conversations in running:
            messages = next(conversations)
            tokens = encoder.encode(messages)
            too_long = sum(tokens.learned) > MOST_REPLY  # the agent allows no such reply
            packer.left_out += too_long
            pool.count(number, _hash(messages), packer.left_out)
            row = None if too_long else packer.add(tokens)
            if row is not None:
                while pool.is_full(number):
                    if os.getppid() != parent:
                        return
                    time.sleep(_PAUSE)
                pool.write(number, *row)


def _hash(messages: Sequence[Message]) -> int:
    """Returns a hash of a conversation's graph and answer. The last line of the prompt is left out: its sizes hardly
    ever repeat."""
    text = "\0".join(
        message.content.rpartition("\n")[0] if message.role == "user" else message.content for message in messages[1:]
    )
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
