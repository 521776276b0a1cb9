"""A chat format that uses the model's own chat template.

The template is rendered with placeholders in place of the messages, never with a whole conversation: many templates
change earlier turns, and in all of them a control token inside a message's text becomes a real one. The text between
placeholders belongs to the template and is tokenised with control tokens; the messages are tokenised as plain text.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from jinja2 import TemplateError
from transformers import AutoTokenizer, GenerationConfig

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import CALL_START, CHAT_TEMPLATE, TURN_END, TURN_START, render
from kernel_assistant_training.ppo.chat.chat_tools import Tools

_PLACEHOLDER = "SAID_HERE_{}_"
_PLACEHOLDERS = re.compile(r"SAID_HERE_(\d+)_")


class TemplateChatFormat:
    """A `ChatFormat` from the model's template; `ends` are further tokens that end a reply. Raises UsageError for a
    template that refuses, repeats or omits messages, and for a vocabulary that does not fit."""

    def __init__(self, tokenizer: Any, ends: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UsageError(f"{type(tokenizer).__name__} cannot keep control tokens out of text", "add tokenizer.json")
        self._marks, self._plain = copy.deepcopy(backend), copy.deepcopy(backend)
        self._marks.encode_special_tokens, self._plain.encode_special_tokens = False, True
        eos = tokenizer.eos_token or ""
        self._template = tokenizer.chat_template or CHAT_TEMPLATE.replace(TURN_END, eos)
        closing = self.tokens(self._behind([], answer=False), plain=False)
        special = {number for number, token in backend.get_added_tokens_decoder().items() if token.special}
        self.ends = tuple(dict.fromkeys([*(one for one in closing[:1] if one in special), *ends]))
        if not self.ends:
            raise UsageError("the vocabulary has no token that ends a reply", "name eos_token in tokenizer_config.json")

    @classmethod
    def load(cls, folder: Path) -> Self:
        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError) as error:
            raise UsageError(f"{folder} has no vocabulary: {error}", "put tokenizer.json beside the weights") from error
        ends = [tokenizer.eos_token_id]
        if (folder / "generation_config.json").is_file():
            named = GenerationConfig.from_pretrained(folder).eos_token_id
            ends += named if isinstance(named, list) else [named]
        return cls(tokenizer, [one for one in ends if one is not None])

    def begin(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Returns the tokens of the first prompt. Tools are passed to the template if it writes calls in the form that
        `agent/calls.py` reads; otherwise the system message describes the tools. If the template has no system role,
        all messages are joined into one user message."""
        if tools:
            native = self._rendered(_roles(messages), tools=tools)
            if native is not None and CALL_START in native:
                return self._assembled(native, [one.content for one in messages])
            messages = _with_tools(messages, tools)
        plain = self._rendered(_roles(messages))
        if plain is not None:
            return self._assembled(plain, [one.content for one in messages])
        together = "\n\n".join(one.content for one in messages)
        alone = self._rendered(["user"])
        if alone is None:
            raise UsageError("the chat template takes no user's message", "give the model another template")
        return self._assembled(alone, [together])

    def after(self, reply: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Returns the tokens between a reply and the next reply. Observations (the messages between them) have the tool
        role if the template has one, else they are joined into one user message."""
        try:
            ids = self._assembled(self._behind(_roles(messages)), [one.content for one in messages])
        except UsageError:
            ids = self._assembled(self._behind(["user"]), ["\n\n".join(one.content for one in messages)])
        return ids[1:] if reply and ids[:1] == [reply[-1]] else ids

    def text(self, ids: Sequence[int]) -> str:
        return str(self._plain.decode(list(ids), skip_special_tokens=False))

    def tokens(self, text: str, *, plain: bool) -> list[int]:
        """Returns the tokens of a text. With `plain`, text that looks like a control token is encoded as ordinary
        text."""
        ids: list[int] = (self._plain if plain else self._marks).encode(text, add_special_tokens=False).ids
        return ids

    def _behind(self, roles: Sequence[str], *, answer: bool = True) -> str:
        """Returns the rendered text between a reply and the end of the messages with these `roles` that follow it. If
        `answer`, it ends where the assistant's next reply begins. Raises UsageError if the template refuses the
        roles."""
        rendered = self._rendered(["user", "assistant", *roles], answer=answer)
        if rendered is None:
            raise UsageError("the chat template takes no answer to a reply", "give the model another template")
        # Placeholders after the reply are numbered from 0 again.
        behind = rendered[_placeholder_end(rendered, 1) :]
        return _PLACEHOLDERS.sub(lambda match: _PLACEHOLDER.format(int(match[1]) - 2), behind)

    def _rendered(self, roles: Sequence[str], *, tools: Tools = (), answer: bool = True) -> str | None:
        """Returns the text that the template gives for messages with these `roles`, with a placeholder for each
        message. Returns None if the template refuses the roles, or if a placeholder does not appear exactly once."""
        messages = [{"role": role, "content": _PLACEHOLDER.format(index)} for index, role in enumerate(roles)]
        for message in messages:
            if message["role"] == "tool":
                message["tool_call_id"] = "call_0"
        try:
            text = self._tokenizer.apply_chat_template(
                messages,
                tools=list(tools) or None,
                chat_template=self._template,
                add_generation_prompt=answer,
                tokenize=False,
            )
        except (TemplateError, KeyError, TypeError, ValueError):
            return None
        indices = [int(number) for number in _PLACEHOLDERS.findall(text)]
        return str(text) if indices == list(range(len(roles))) else None

    def _assembled(self, rendered: str, contents: Sequence[str]) -> list[int]:
        ids: list[int] = []
        for stretch, index in _stretches(rendered):
            ids += self.tokens(stretch, plain=False)
            ids += self.tokens(contents[index], plain=True) if index is not None else []
        return ids


def _roles(messages: Sequence[Message]) -> list[str]:
    return [one.role for one in messages]


def _with_tools(messages: Sequence[Message], tools: Tools) -> list[Message]:
    """Returns the messages with a description of the tools in the system message, worded as in the product's own
    template. Adds a system message if there is none."""
    first = messages[0] if messages and messages[0].role == "system" else Message(role="system", content="")
    described = render([first], tools=tools, answer=False).removeprefix(f"{TURN_START}system\n")
    content = described.removesuffix(f"{TURN_END}\n").strip()
    return [Message(role="system", content=content), *messages[1 if first is messages[0] else 0 :]]


def _placeholder_end(text: str, index: int) -> int:
    return text.index(_PLACEHOLDER.format(index)) + len(_PLACEHOLDER.format(index))


def _stretches(rendered: str) -> Iterator[tuple[str, int | None]]:
    """Yields the parts of the rendered text that belong to the template, each with the index of the message that
    follows it (None after the last message)."""
    begin = 0
    for match in _PLACEHOLDERS.finditer(rendered):
        yield rendered[begin : match.start()], int(match[1])
        begin = match.end()
    yield rendered[begin:], None
