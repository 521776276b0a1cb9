"""Separates a model's reasoning from its reply, if the server has left it in the text."""

from __future__ import annotations

import re

#: Tags around reasoning: most models; Seed-OSS; Mistral; Kimi.
TAGS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
)


def without_reasoning(text: str) -> tuple[str, str]:
    """Returns the reasoning, and the rest of the text. The opening tag may be missing, because some chat templates
    write it; the closing tag may be missing in a reply that was cut off."""
    taken: list[str] = []
    for opening, closing in TAGS:
        if opening not in text and closing not in text:
            continue
        between = re.compile(f"{re.escape(opening)}(.*?){re.escape(closing)}", re.DOTALL)
        taken += between.findall(text)
        text = between.sub("", text)
        before, closed, behind = text.partition(closing)
        if closed:
            taken.append(before)
            text = behind
        if text.lstrip().startswith(opening):
            taken.append(text.lstrip().removeprefix(opening))
            text = ""
    return "\n".join(part.strip() for part in taken), text.strip() if taken else text
