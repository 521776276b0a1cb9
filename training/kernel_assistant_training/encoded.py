"""Conversations as tokens, made by several processes: a lent GPU would wait for one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from multiprocessing import get_context

from kernel_assistant.records.transcript import Message
from kernel_assistant_training.conversation import Encoder, Tokens
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
    with get_context("spawn").Pool(processes) as pool:
        return [one for found in pool.map(_encoded, chunks, chunksize=1) for one in found]


def drawn(source: Source, seed: int, count: int, processes: int = 1) -> list[Tokens]:
    """`count` conversations of a source. Several processes have a seed each: others than one process would draw."""
    if processes == 1:
        return _drawn(source, seed, count)
    asked = [(source, 1000 * (seed + 1) + part, len(range(part, count, processes))) for part in range(processes)]
    with get_context("spawn").Pool(processes) as pool:
        return [one for found in pool.starmap(_drawn, asked, chunksize=1) for one in found]


def _encoded(conversations: Sequence[Conversation]) -> list[Tokens]:
    encoder = Encoder(load())
    return [encoder.encode(messages, learned) for messages, learned in conversations]


def _drawn(source: Source, seed: int, count: int) -> list[Tokens]:
    encoder = Encoder(load())
    return [encoder.encode(messages) for messages in islice(source(seed), count)]
