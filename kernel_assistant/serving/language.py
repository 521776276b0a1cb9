"""The syntax ("language") in which models for the compact profile write kernels; finds models that write that of an
older release of this tool.

`config.json` and a GGUF file have a field with the language. Models of older releases lack this field: a GGUF file is
recognized by the name that training gave it, a folder by its chat template.
"""

from __future__ import annotations

import json
from pathlib import Path

from kernel_assistant.serving.llama.gguf_header import LANGUAGE_FIELD, read_header
from kernel_assistant.serving.template import CHAT_TEMPLATE, TRAINING_TEMPLATE

#: What the field says of models that are trained today.
LANGUAGE = "schedule"
#: `general.name` of the GGUF files that training writes.
TRAINED_NAME = "kernel-assistant"


def is_earlier(where: Path) -> bool:
    """Whether a model, a GGUF file or a folder, writes kernels in the syntax of an older release of this tool."""
    return _folder_is_earlier(where) if where.is_dir() else _file_is_earlier(where)


def _file_is_earlier(file: Path) -> bool:
    header = read_header(file)
    return header is not None and header.name == TRAINED_NAME and header.language != LANGUAGE


def _folder_is_earlier(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return template in (TRAINING_TEMPLATE, CHAT_TEMPLATE) and config.get(LANGUAGE_FIELD) != LANGUAGE
