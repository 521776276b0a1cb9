"""The chat template: ChatML, with tool calls in the syntax of Hermes. `CHAT_TEMPLATE` is the same template in Jinja.

Text of messages never becomes a special token here: `<|im_end|>` in a tool's answer is ordinary text, not the end of a
turn. Servers that render the Jinja template themselves do not guarantee this.
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
#: Single tokens in a vocabulary for this template: the first three are control tokens, the others ordinary text.
CONTROL_TOKENS = ("<|endoftext|>", TURN_START, TURN_END)
MARKER_TOKENS = (CALL_START, CALL_END)
_INSIDE_CONTROL = re.compile(f"(?<=<\\|)(?={'|'.join(re.escape(token[2:]) for token in CONTROL_TOKENS)})")
#: With `{% generation %}` around the assistant's text, for the loss mask of TRL.
TRAINING_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")


def without_marks(template: str) -> str:
    """Returns the template without `{% generation %}`, an extension of transformers that other servers do not
    support."""
    return re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", template)


CHAT_TEMPLATE = without_marks(TRAINING_TEMPLATE)


@dataclass(frozen=True)
class PromptPiece:
    """A piece of a prompt: tokens that are given (`ids`), one special token (`special`), or ordinary text."""

    text: str
    special: bool = False
    ids: tuple[int, ...] | None = None


def pieces(messages: Sequence[Message], *, tools: Sequence[Any] = (), answer: bool = True) -> Iterator[PromptPiece]:
    """Yields the pieces of the prompt for `messages`; with `answer`, up to the beginning of the assistant's next turn.

    `tools` are OpenAI schemas; they follow the system message. An assistant's `token_ids` are used instead of its text.
    """
    for message in messages:
        yield PromptPiece(TURN_START, special=True)
        if message.role == "assistant":
            yield PromptPiece("assistant\n")
            yield PromptPiece(written_text(message), ids=_own_tokens(message))
        else:
            schemas, tools = (tools_text(tools), ()) if tools and message.role == "system" else ("", tools)
            yield PromptPiece(f"{message.role}\n{message.content}{schemas}")
        yield PromptPiece(TURN_END, special=True)
        yield PromptPiece("\n")
    if answer:
        yield PromptPiece(TURN_START, special=True)
        yield PromptPiece("assistant\n")


def assemble(parts: Iterable[PromptPiece], tokens: Callable[[PromptPiece], Sequence[int]]) -> list[int]:
    """Returns the prompt as tokens; `tokens` tokenizes a piece without ids. If the sampled tokens of a turn already
    contain its end token, no second one is added."""
    ids: list[int] = []
    for part in parts:
        part_ids = tuple(tokens(part) if part.ids is None else part.ids)
        sampled_to_its_end = part.special and part.text == TURN_END and tuple(ids[-1:]) == part_ids
        ids += () if sampled_to_its_end else part_ids
    return ids


def without_control(text: str) -> list[str]:
    """Splits ordinary text into parts that do not contain the text of a control token, which some servers would
    interpret. The text is split only where the pre-tokenizer splits too, so the tokens are those of the whole text."""
    return _INSIDE_CONTROL.split(text)


def render(messages: Sequence[Message], *, tools: Sequence[Any] = (), answer: bool = True) -> str:
    """Returns the prompt as one string, as `CHAT_TEMPLATE` renders it."""
    return "".join(piece.text for piece in pieces(messages, tools=tools, answer=answer))


def write_call(name: str, arguments: str) -> str:
    """Returns the text of a tool call in the form in which the assistant writes it. `arguments` is JSON, or the invalid
    text of a model."""
    try:
        written = json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        written = arguments
    return f'{CALL_START}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {written}}}\n{CALL_END}'


def written_text(message: Message) -> str:
    """Returns the text of an assistant's message, with its calls as the assistant writes them."""
    written = [message.content] if message.content else []
    return "\n".join(written + [write_call(call.name, call.arguments) for call in message.tool_calls])


def _own_tokens(message: Message) -> tuple[int, ...] | None:
    return None if message.token_ids is None else tuple(message.token_ids)


def tools_text(tools: Sequence[Any]) -> str:
    """Returns the text about tools at the end of the system message: their schemas, and how to call a tool."""
    lines = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    how = f'Call a tool with {CALL_START}\n{{"name": NAME, "arguments": OBJECT}}\n{CALL_END}'
    return f"\n\n<tools>{lines}\n</tools>\n{how}"
