"""A trajectory: one episode as the tokens that were sampled and read, for training.

Made from the transcript that the agent loop writes. What the model said goes in as the ids that it sampled, everything
else as the engine read it; nothing is cut into tokens twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Transcript
from kernel_assistant.serving.template import Piece, assemble, pieces
from kernel_assistant_training.ppo.rewards import Reward
from kernel_assistant_training.tokenizer import id_of

#: Tokens of a piece of a prompt that has none of its own.
PieceTokens = Callable[[Piece], Sequence[int]]


@dataclass(frozen=True)
class Said:
    """`ids` of a whole conversation; each of `spans` is (begin, count) of the tokens of one reply, in order, and
    `logprobs` has one number for each of these tokens."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    logprobs: tuple[float, ...]


class Trajectory(Record, frozen=True, kw_only=True):
    """One episode. `ids` are little-endian int32, `logprobs` float32 of the actions alone, which are the tokens in
    `spans` (begin, count): the policy's own, before temperature. `key` is the canonical graph's, `seed` the episode's.

    `calls` says for each reply what it asked for: "evaluate", "finish", "idle" (nothing) or "schema" (something that
    could not be read). `candidates` are the hashes of what was judged, in order. `stop` is how it ended; `void` that
    the judge was lost in it, so that its reward says nothing.
    """

    key: str
    seed: int
    target: str
    iteration: int
    ids: bytes
    spans: tuple[tuple[int, int], ...]
    logprobs: bytes
    reward: Reward
    stop: str
    calls: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    best_ms: float | None = None
    eager_ms: float = 0.0
    void: bool = False

    def __post_init__(self) -> None:
        end = 0
        for begin, count in self.spans:
            if count < 1 or begin < max(end, 1):
                raise ValueError("spans are in order, do not overlap, and something stands before the first")
            end = begin + count
        if end > self.length:
            raise ValueError("a span ends behind the tokens")
        if len(self.logprobs) != 4 * self.actions:
            raise ValueError("one log-probability for each action")

    @classmethod
    def of(cls, said: Said, **fields: Any) -> Self:
        ids, logprobs = np.asarray(said.ids, "<i4").tobytes(), np.asarray(said.logprobs, "<f4").tobytes()
        return cls(ids=ids, spans=said.spans, logprobs=logprobs, **fields)

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.ids) // 4

    @property
    def actions(self) -> int:
        """Tokens that the model wrote."""
        return sum(count for _, count in self.spans)

    @property
    def turns(self) -> int:
        return len(self.spans)

    def said(self) -> Said:
        ids, logprobs = np.frombuffer(self.ids, "<i4").tolist(), np.frombuffer(self.logprobs, "<f4").tolist()
        return Said(tuple(ids), self.spans, tuple(logprobs))


def piece_tokens(tokenizer: Tokenizer) -> PieceTokens:
    """For the product's own vocabulary; text never becomes a control token."""
    tokenizer.encode_special_tokens = True

    def found(piece: Piece) -> Sequence[int]:
        if piece.special:
            return [id_of(tokenizer, piece.text)]
        ids: list[int] = tokenizer.encode(piece.text, add_special_tokens=False).ids
        return ids

    return found


def said_in(transcript: Transcript, tokens: PieceTokens) -> Said:
    """The tokens of a conversation, from its first message to the end of its last reply; what stands behind that, the
    model never read. Raises UsageError where it is not append-only, or replies have no tokens of their own."""
    ids: list[int] = []
    spans: list[tuple[int, int]] = []
    logprobs: list[float] = []
    for message in transcript.messages:
        if message.short_from:
            raise UsageError(
                "the conversation was shortened on the way", "train on the compact profile, or longer contexts"
            )
        tools = transcript.tools if message.role == "system" else ()
        if message.role == "assistant":
            if message.token_ids is None or message.logprobs is None:
                raise UsageError("a reply has no token ids with log-probabilities", "ask an engine that gives them")
            if message.token_ids:
                ids += assemble(pieces([]), tokens)
                spans.append((len(ids), len(message.token_ids)))
                logprobs += message.logprobs
                ids += _written(pieces([message], answer=False), tokens)
                continue
        ids += assemble(pieces([message], tools=tools, answer=False), tokens)
    if not spans:
        return Said(tuple(ids), (), ())
    end = sum(spans[-1])
    return Said(tuple(ids[:end]), tuple(spans), tuple(logprobs))


def _written(parts: Iterable[Piece], tokens: PieceTokens) -> list[int]:
    """An assistant's message from its own tokens on, closed as the next prompt has it."""
    _start, _role, *rest = parts
    return assemble(rest, tokens)
