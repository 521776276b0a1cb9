"""Encodes conversations as tokens in several processes, because a GPU would have to wait for a single process."""

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
from kernel_assistant_training.reply import MOST_REPLY
from kernel_assistant_training.source import Source
from kernel_assistant_training.tokenizer import load

#: The messages of a conversation, and for each whether it is learned; None: every assistant's message is.
Conversation = tuple[list[Message], list[bool] | None]
CHUNK = 200


def encoded(conversations: Sequence[Conversation], processes: int = 1) -> list[Tokens]:
    """Returns the tokens of each conversation, in order. `processes` processes encode at once. Raises InternalError if
    one of them dies."""
    if processes == 1:
        return _encoded(conversations)
    chunks = [conversations[first : first + CHUNK] for first in range(0, len(conversations), CHUNK)]
    return _side_by_side(processes, _encoded, [(chunk,) for chunk in chunks])


def drawn(source: Source, seed: int, count: int, processes: int = 1) -> list[Tokens]:
    """Returns the tokens of `count` conversations. `source`, called with a seed, yields conversations. Each process has
    its own seed, so the conversations depend on the number of processes. Raises InternalError if a process dies."""
    if processes == 1:
        return _drawn(source, seed, count)
    asked = [(source, 1000 * (seed + 1) + part, len(range(part, count, processes))) for part in range(processes)]
    return _side_by_side(processes, _drawn, asked)


def _side_by_side(processes: int, make: Callable[..., list[Tokens]], asked: Sequence[tuple[Any, ...]]) -> list[Tokens]:
    """Calls `make` with each tuple of arguments in `asked`, in several processes, and returns all results in the same
    order. Raises InternalError if a process dies; `multiprocessing.Pool` would wait for ever."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=belong_to_parent)
    try:
        futures = [pool.submit(make, *arguments) for arguments in asked]
        return [one for each in futures for one in each.result()]
    except BrokenProcessPool as error:
        cause = "a process that turns conversations into tokens died (out of memory?)"
        raise InternalError(cause, "start it again, with fewer --processes") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _encoded(conversations: Sequence[Conversation]) -> list[Tokens]:
    encoder = Encoder(load())
    return [encoder.encode(messages, learned) for messages, learned in conversations]


def _drawn(source: Source, seed: int, count: int) -> list[Tokens]:
    """Returns the tokens of the first `count` conversations of a source. Skips conversations with more than MOST_REPLY
    tokens in the loss, because the agent does not allow such a reply."""
    encoder = Encoder(load())
    tokens = (encoder.encode(messages) for messages in source(seed))
    return list(islice((one for one in tokens if sum(one.learned) <= MOST_REPLY), count))
