"""Conversations as tokens, made by several processes: a lent GPU would wait for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from typing import Any

from kernel_assistant.errors import InternalError
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.conversation import Encoder, Tokens
from kernel_assistant_training.interrupts import belong_to_parent
from kernel_assistant_training.source import Source
from kernel_assistant_training.tokenizer import load

#: Of a conversation for each message whether it is learned, None for every assistant's.
Conversation = tuple[list[Message], list[bool] | None]
CHUNK = 200


def encoded(conversations: Sequence[Conversation], processes: int = 1) -> list[Tokens]:
    """In order."""
    if processes == 1:
        return _encoded(conversations)
    chunks = [conversations[first : first + CHUNK] for first in range(0, len(conversations), CHUNK)]
    return _side_by_side(processes, _encoded, [(chunk,) for chunk in chunks])


def drawn(source: Source, seed: int, count: int, processes: int = 1) -> list[Tokens]:
    """`count` conversations of a source. Several processes have a seed each: others than one process would draw."""
    if processes == 1:
        return _drawn(source, seed, count)
    asked = [(source, 1000 * (seed + 1) + part, len(range(part, count, processes))) for part in range(processes)]
    return _side_by_side(processes, _drawn, asked)


def _side_by_side(processes: int, make: Callable[..., list[Tokens]], asked: Sequence[tuple[Any, ...]]) -> list[Tokens]:
    """In order. Raises InternalError where a process dies: `multiprocessing.Pool` would wait for it for ever."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=belong_to_parent)
    try:
        found = [pool.submit(make, *arguments) for arguments in asked]
        return [one for each in found for one in each.result()]
    except BrokenProcessPool as error:
        cause = "a process that turns conversations into tokens died (out of memory?)"
        raise InternalError(cause, "start it again, with fewer --processes") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _encoded(conversations: Sequence[Conversation]) -> list[Tokens]:
    encoder = Encoder(load())
    return [encoder.encode(messages, learned) for messages, learned in conversations]


def _drawn(source: Source, seed: int, count: int) -> list[Tokens]:
    encoder = Encoder(load())
    return [encoder.encode(messages) for messages in islice(source(seed), count)]
