"""Which of vLLM's parsers reads the tool calls of a model, by what its chat template writes.

Marks of some families are special tokens, which vLLM leaves out of the text, so that only its own parser sees them.
What it leaves in the text our reader understands (`agent/replies/`), reasoning included.
"""

from __future__ import annotations

import json
from pathlib import Path

#: Marks of a template, and the arguments of vLLM for it; the first row of which all marks are found counts.
FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("<|channel|>",), ("--tool-call-parser", "openai", "--reasoning-parser", "openai_gptoss")),
    (("<arg_key>",), ("--tool-call-parser", "glm45")),
    (("<seed:tool_call>",), ("--tool-call-parser", "seed_oss")),
    (("<minimax:tool_call>",), ("--tool-call-parser", "minimax_m2")),
    (("<tool_call>", "<function=", "<parameter="), ("--tool-call-parser", "qwen3_coder")),
    (("<|tool_calls_section_begin|>",), ("--tool-call-parser", "kimi_k2")),
    (("<｜tool▁calls▁begin｜>", "```json"), ("--tool-call-parser", "deepseek_v3")),
    (("<｜tool▁calls▁begin｜>",), ("--tool-call-parser", "deepseek_v31")),
    (("[TOOL_CALLS]",), ("--tool-call-parser", "mistral")),
    (("<|tool_call|>",), ("--tool-call-parser", "granite")),
    (("<tool_call>",), ("--tool-call-parser", "hermes")),
    (("<|start_header_id|>", '"parameters"'), ("--tool-call-parser", "llama3_json")),
)
#: Of a template without any mark, or without a template that is here: it leaves text of other forms as it is.
OTHERS = ("--tool-call-parser", "hermes")


def parsers(template: str) -> tuple[str, ...]:
    """Arguments of vLLM for a chat template."""
    return next((words for marks, words in FAMILIES if all(mark in template for mark in marks)), OTHERS)


def template_of(model: str) -> str:
    """The chat template of a Hugging Face folder; "" if it has none, or if `model` is no folder."""
    folder = Path(model)
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
        found = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return ""
    if isinstance(found, list):
        # Several by name; the one for tools is what a request with tools is rendered with.
        named = {str(each.get("name")): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("tool_use") or named.get("default")
    return found if isinstance(found, str) else ""
