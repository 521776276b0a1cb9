"""Turns a conversation into tokens: with the product's own vocabulary and template, or with those of the model.

A conversation only grows. The first prompt is tokenised once; after each sampled reply, only the text up to the next
reply is added. Nothing is tokenised twice, and training sees exactly the tokens that were sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import (
    CHAT_TEMPLATE,
    TRAINING_TEMPLATE,
    TURN_END,
    PromptPiece,
    assemble,
    pieces,
)
from kernel_assistant_training.ppo.chat.chat_tools import Tools
from kernel_assistant_training.ppo.trajectory import ReplySpans
from kernel_assistant_training.tokenizer import id_of, load


class ChatFormat(Protocol):
    """Turns the messages of a conversation into tokens. `ends` are the tokens that end a reply, the most usual
    first."""

    ends: tuple[int, ...]

    def begin(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Returns the tokens of the prompt for the first reply."""

    def after(self, reply: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Returns the tokens between `reply` and the next reply, which include `messages`, the messages between the two
        replies."""

    def text(self, ids: Sequence[int]) -> str: ...


class BuiltInChatFormat:
    """The chat format with the product's vocabulary and template. Text that looks like a control token is encoded as
    plain text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = True
        self.ends: tuple[int, ...] = (id_of(tokenizer, TURN_END),)

    def begin(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        return assemble(pieces(messages, tools=tools), self._tokens)

    def after(self, reply: Sequence[int], messages: Sequence[Message]) -> list[int]:
        reply_piece = PromptPiece("", ids=tuple(reply))
        closed = [reply_piece, PromptPiece(TURN_END, special=True), PromptPiece("\n"), *pieces(messages)]
        return assemble(closed, self._tokens)[len(reply) :]

    def text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _tokens(self, piece: PromptPiece) -> Sequence[int]:
        if piece.special:
            return [id_of(self._tokenizer, piece.text)]
        ids: list[int] = self._tokenizer.encode(piece.text, add_special_tokens=False).ids
        return ids


def speech_of(folder: Path) -> ChatFormat:
    """Returns the chat format for the model in a folder: the built-in one if the folder has the product's template,
    else the model's own. Raises UsageError if the folder has no vocabulary."""
    template = folder / "chat_template.jinja"
    known = template.read_text(encoding="utf-8") if template.is_file() else ""
    if known in (TRAINING_TEMPLATE, CHAT_TEMPLATE):
        return BuiltInChatFormat(load(folder))
    from kernel_assistant_training.ppo.chat.chat_format_template import TemplateChatFormat

    return TemplateChatFormat.load(folder)


class TokenizedConversation:
    """The tokens of one conversation: all prompts and sampled replies so far, as they are passed to the engine."""

    def __init__(self, speech: ChatFormat) -> None:
        self._speech = speech
        self._heard: tuple[Message, ...] = ()
        self._ids: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._logprobs: list[float] = []

    def prompt(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Returns the tokens of the prompt for the next reply. `messages` must begin with the messages of the previous
        prompt and its reply, followed by new messages; else UsageError is raised."""
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
        """Appends the tokens of a sampled reply to the newest prompt."""
        self._spans.append((len(self._ids), len(ids)))
        self._ids += ids
        self._logprobs += logprobs

    def said(self) -> ReplySpans:
        """Returns all tokens up to the end of the last reply, with the replies' positions and log-probabilities. Leaves
        out later tokens, because the model never read them."""
        end = sum(self._spans[-1]) if self._spans else len(self._ids)
        return ReplySpans(tuple(self._ids[:end]), tuple(self._spans), tuple(self._logprobs))


def _same(before: Sequence[Message], now: Sequence[Message]) -> bool:
    """Whether `now` begins with the messages `before`. The assistant's messages are not compared, since their tokens
    are known."""
    return all(
        one == other for one, other in zip(before, now, strict=False) if "assistant" not in (one.role, other.role)
    )
