"""gpt-oss's form (harmony) as raw text: messages on channels, of which one is a call if it names a receiver."""

from __future__ import annotations

import re

from kernel_assistant.agent.replies.parsed import ParsedCall, named_values

MESSAGE = "<|message|>"
_ENDS = re.compile(r"<\|(?:end|call|return|start)\|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECEIVER = re.compile(r"to=(?:functions\.)?([\w.-]+)")


def harmony(text: str) -> tuple[str, str, list[ParsedCall]]:
    """Reasoning (the channel `analysis`), text, and calls of a reply. The header of a message, with channel and
    receiver in either order, ends with `<|message|>`."""
    reasoning, said, calls = list[str](), list[str](), list[ParsedCall]()
    for message in _ENDS.split(text):
        header, _, body = message.partition(MESSAGE)
        receiver, channel = _RECEIVER.search(header), _CHANNEL.search(header)
        if receiver:
            calls += named_values(body, [(receiver[1], 0)])
        elif channel and channel[1] == "analysis":
            reasoning.append(body.strip())
        else:
            said.append(body.strip())
    return "\n".join(filter(None, reasoning)), "\n".join(filter(None, said)), calls
