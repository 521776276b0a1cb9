"""How a model is spoken to in tokens: with the product's own vocabulary and template, or with the model's.

A conversation only grows. Its first prompt is made once; behind each reply, as it was sampled, comes what stands
between a reply and the next one. Nothing is tokenised twice, and what is learned is what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import (
    CHAT_TEMPLATE,
    TRAINING_TEMPLATE,
    TURN_END,
    Piece,
    assemble,
    pieces,
)
from kernel_assistant_training.ppo.trajectory import Said
from kernel_assistant_training.tokenizer import id_of, load

Tools = Sequence[dict[str, Any]]


class Speech(Protocol):
    """`ends` are the tokens that end a reply, the usual one first."""

    ends: tuple[int, ...]

    def begin(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """The prompt of the first reply."""

    def after(self, reply: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """What stands between the tokens of a reply and the next one, which answers `messages`."""

    def text(self, ids: Sequence[int]) -> str: ...


class OwnSpeech:
    """The product's vocabulary and template. Text never becomes a control token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = True
        self.ends: tuple[int, ...] = (id_of(tokenizer, TURN_END),)

    def begin(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        return assemble(pieces(messages, tools=tools), self._tokens)

    def after(self, reply: Sequence[int], messages: Sequence[Message]) -> list[int]:
        said = Piece("", ids=tuple(reply))
        closed = [said, Piece(TURN_END, special=True), Piece("\n"), *pieces(messages)]
        return assemble(closed, self._tokens)[len(reply) :]

    def text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _tokens(self, piece: Piece) -> Sequence[int]:
        if piece.special:
            return [id_of(self._tokenizer, piece.text)]
        ids: list[int] = self._tokenizer.encode(piece.text, add_special_tokens=False).ids
        return ids


def speech_of(folder: Path) -> Speech:
    """That of a model's folder. Raises UsageError where it has no vocabulary."""
    template = folder / "chat_template.jinja"
    known = template.read_text(encoding="utf-8") if template.is_file() else ""
    if known in (TRAINING_TEMPLATE, CHAT_TEMPLATE):
        return OwnSpeech(load(folder))
    from kernel_assistant_training.ppo.speech_template import TemplateSpeech

    return TemplateSpeech.load(folder)


class Spoken:
    """One conversation in tokens, as an engine reads it."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._heard: tuple[Message, ...] = ()
        self._ids: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._logprobs: list[float] = []

    def prompt(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Of the next reply to `messages`, which are those of the prompt before, its reply, and others. Raises
        UsageError where they are not."""
        if not self._spans:
            self._ids = self._speech.begin(messages, tools)
        elif len(self._heard) < len(messages) and _same(self._heard, messages) and messages[-1].role != "assistant":
            begin, count = self._spans[-1]
            self._ids += self._speech.after(self._ids[begin : begin + count], messages[len(self._heard) + 1 :])
        else:
            raise UsageError("the conversation was changed on the way", "train without compacting, or longer contexts")
        self._heard = tuple(messages)
        return list(self._ids)

    def add(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """The reply to the newest prompt."""
        self._spans.append((len(self._ids), len(ids)))
        self._ids += ids
        self._logprobs += logprobs

    def said(self) -> Said:
        """To the end of the last reply; what stands behind that, the model never read."""
        end = sum(self._spans[-1]) if self._spans else len(self._ids)
        return Said(tuple(self._ids[:end]), tuple(self._spans), tuple(self._logprobs))


def _same(before: Sequence[Message], now: Sequence[Message]) -> bool:
    """What the model wrote is known by its tokens."""
    return all(
        one == other for one, other in zip(before, now, strict=False) if "assistant" not in (one.role, other.role)
    )
