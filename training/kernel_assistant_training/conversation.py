"""Encodes a conversation as the same tokens that serving (`serving/llama/embedded.py`) sends to the model, and marks
the tokens that the assistant writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tokenizers import Tokenizer

from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import TURN_END, PromptPiece, pieces
from kernel_assistant_training.tokenizer import ReplyTokenizer, id_of

#: An assistant's turn has five pieces: start, role, content, end, line feed. The model writes content and end.
_CONTENT, _WRITTEN = 2, (2, 3)
#: Shorter texts belong to the template and repeat, so their tokens are cached.
_SHORT = 16


@dataclass(frozen=True)
class Tokens:
    """The tokens of a conversation. `learned` says for each token whether the loss includes it; only tokens that the
    assistant writes, its end token included, can be in the loss."""

    ids: list[int]
    learned: list[bool]


class Encoder:
    """Encodes the messages of a conversation as tokens. Text in a message that looks like a control token stays plain
    text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.encode_special_tokens = True
        self._tokenizer, self._replies = tokenizer, ReplyTokenizer(tokenizer)
        self._end = id_of(tokenizer, TURN_END)
        self._known = lru_cache(maxsize=64)(self._encode)

    def encode(self, messages: Sequence[Message], learned: Sequence[bool] | None = None) -> Tokens:
        """Returns the tokens of a conversation. `learned` has a bool for each message: whether the loss includes it; it
        has no effect on messages that are not the assistant's. By default the loss includes all of the assistant's
        messages."""
        ids: list[int] = []
        marks: list[bool] = []
        for number, message in enumerate(messages):
            wanted = message.role == "assistant" and (learned is None or learned[number])
            for index, piece in enumerate(pieces([message], answer=False)):
                if piece.text == TURN_END and piece.special and ids[-1] == self._end:
                    continue  # sampled tokens contain the end token already
                written = message.role == "assistant" and index == _CONTENT
                part = self._tokens(piece, message.role, written=written)
                ids += part
                marks += [wanted and index in _WRITTEN] * len(part)
        return Tokens(ids, marks)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens of the conversation and of the header that begins the assistant's next turn."""
        start, role, *_ = pieces([Message(role="assistant", content="")], answer=False)
        return self.encode(messages).ids + self._tokens(start, "assistant") + self._tokens(role, "assistant")

    def reply(self, text: str) -> list[int]:
        """Returns the tokens of `text`, a reply of the assistant, without the token that ends a turn."""
        return self._replies.encode(text)

    def _tokens(self, piece: PromptPiece, role: str, *, written: bool = False) -> list[int]:
        if piece.ids is not None:
            return list(piece.ids)
        if piece.special:
            return [id_of(self._tokenizer, piece.text)]
        if written:
            return self.reply(piece.text)
        # Of long texts only the system message repeats.
        known = role == "system" or len(piece.text) < _SHORT
        return self._known(piece.text) if known else self._encode(piece.text)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
