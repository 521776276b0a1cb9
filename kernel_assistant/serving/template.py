"""The one chat template: ChatML with tool calls in the form of Hermes. `CHAT_TEMPLATE` is the same as Jinja.

Text of messages never becomes a special token here: an observation that contains `<|im_end|>` is that text, not the end
of a turn. Servers that render the Jinja form themselves do not promise this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.records.transcript import Message

TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
CALL_START = "<tool_call>"
CALL_END = "</tool_call>"
#: Tokens of their own in a vocabulary for this template: the first three control, the others are ordinary text.
CONTROL_TOKENS = ("<|endoftext|>", TURN_START, TURN_END)
MARKER_TOKENS = (CALL_START, CALL_END)
_INSIDE_CONTROL = re.compile(f"(?<=<\\|)(?={'|'.join(re.escape(token[2:]) for token in CONTROL_TOKENS)})")
#: With `{% generation %}` around what the assistant wrote, for the loss mask of TRL.
TRAINING_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")


def without_marks(template: str) -> str:
    """Without `{% generation %}`, an extension of transformers that other servers do not know."""
    return re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", template)


CHAT_TEMPLATE = without_marks(TRAINING_TEMPLATE)


@dataclass(frozen=True)
class Piece:
    """A stretch of a prompt: tokens as they are (`ids`), one special token (`special`), or ordinary text."""

    text: str
    special: bool = False
    ids: tuple[int, ...] | None = None


def pieces(messages: Sequence[Message], *, tools: Sequence[Any] = (), answer: bool = True) -> Iterator[Piece]:
    """The prompt for `messages` up to where the assistant's next turn begins, if `answer`.

    `tools` are OpenAI's schemas; they follow the system message. An assistant's `token_ids` go before its text.
    """
    for message in messages:
        yield Piece(TURN_START, special=True)
        if message.role == "assistant":
            yield Piece("assistant\n")
            yield Piece(_said(message), ids=_own_tokens(message))
        else:
            schemas, tools = (_schemas(tools), ()) if tools and message.role == "system" else ("", tools)
            yield Piece(f"{message.role}\n{message.content}{schemas}")
        yield Piece(TURN_END, special=True)
        yield Piece("\n")
    if answer:
        yield Piece(TURN_START, special=True)
        yield Piece("assistant\n")


def assemble(parts: Iterable[Piece], tokens: Callable[[Piece], Sequence[int]]) -> list[int]:
    """The prompt as tokens; `tokens` gives those of a piece that has none. A turn that the model ended itself has its
    end among what it sampled, and gets no second one."""
    ids: list[int] = []
    for part in parts:
        found = tuple(tokens(part) if part.ids is None else part.ids)
        sampled_to_its_end = part.special and part.text == TURN_END and tuple(ids[-1:]) == found
        ids += () if sampled_to_its_end else found
    return ids


def without_control(text: str) -> list[str]:
    """Ordinary text in stretches none of which holds a control token, for servers that would take it for one. Cut
    where the vocabulary's splitting cuts as well, so that the tokens are those of the whole text."""
    return _INSIDE_CONTROL.split(text)


def render(messages: Sequence[Message], *, tools: Sequence[Any] = (), answer: bool = True) -> str:
    """The same as one string, as `CHAT_TEMPLATE` gives it."""
    return "".join(piece.text for piece in pieces(messages, tools=tools, answer=answer))


def write_call(name: str, arguments: str) -> str:
    """A tool call as the assistant writes it. `arguments` is JSON, or what a model took for it."""
    try:
        written = json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        written = arguments
    return f'{CALL_START}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {written}}}\n{CALL_END}'


def _said(message: Message) -> str:
    written = [message.content] if message.content else []
    return "\n".join(written + [write_call(call.name, call.arguments) for call in message.tool_calls])


def _own_tokens(message: Message) -> tuple[int, ...] | None:
    return None if message.token_ids is None else tuple(message.token_ids)


def _schemas(tools: Sequence[Any]) -> str:
    lines = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    how = f'Call a tool with {CALL_START}\n{{"name": NAME, "arguments": OBJECT}}\n{CALL_END}'
    return f"\n\n<tools>{lines}\n</tools>\n{how}"
