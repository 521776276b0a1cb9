"""Reads the header of a GGUF file: the context for which the model was made, the memory for each token of a context,
whether there is a chat template.

The package `gguf` is not used, because it takes 9 s for a vocabulary of 262,000 words, and is not installed everywhere.
The layout of the header: docs/gguf.md of ggml.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The field of a model's language (`serving/language.py`), also in `config.json`.
LANGUAGE_FIELD = "kernel_assistant.language"
#: Types of values: the codes of `struct` for numbers, then text and lists.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
#: Bytes of a value in the cache of keys and values.
_CACHED_BYTES = 2


@dataclass(frozen=True)
class GgufHeader:
    """Facts about the model of a GGUF file. `context` is in tokens, 0 if the file does not say. `token_bytes` is the
    most memory that keys and values of one token take; layers that look back only a little need less. `language` is the
    syntax in which a model for the compact profile writes kernels (`serving/language.py`)."""

    context: int
    token_bytes: int
    chat_template: bool
    language: str = ""
    name: str = ""


def read_header(file: Path) -> GgufHeader | None:
    """Returns the header of a GGUF file, None if it cannot be read."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            fields = _fields(data)
    except (OSError, ValueError, KeyError, struct.error):
        return None
    of = fields.get("general.architecture", "")
    heads = _most(fields.get(f"{of}.attention.head_count"))
    width = fields.get(f"{of}.embedding_length", 0) // max(heads, 1)
    each = sum(fields.get(f"{of}.attention.{name}_length", width) for name in ("key", "value"))
    kept = _most(fields.get(f"{of}.attention.head_count_kv")) or heads
    return GgufHeader(
        context=fields.get(f"{of}.context_length", 0),
        token_bytes=fields.get(f"{of}.block_count", 0) * kept * each * _CACHED_BYTES,
        chat_template=bool(fields.get("tokenizer.chat_template")),
        language=str(fields.get(LANGUAGE_FIELD, "")),
        name=str(fields.get("general.name", "")),
    )


def _most(value: Any) -> int:
    """Returns a number of the header, or the largest of a list that has one for each layer; 0 if it is missing."""
    return max(value, default=0) if isinstance(value, list) else value or 0


def _fields(data: mmap.mmap) -> dict[str, Any]:
    """Returns the fields of a header by name; long lists have the value None. Raises ValueError, KeyError and
    struct.error if the data is not a GGUF file."""
    if data[:4] != b"GGUF":
        raise ValueError("not a GGUF file")
    _, _, count = struct.unpack_from("<IQQ", data, 4)
    at, fields = 24, dict[str, Any]()
    for _ in range(count):
        name, at = _text(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        fields[name], at = _value(data, at + 4, kind)
    return fields


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind == _TEXT:
        return _text(data, at)
    if kind != _LIST:
        code = "<" + _NUMBERS[kind]
        return struct.unpack_from(code, data, at)[0], at + struct.calcsize(code)
    of, size = struct.unpack_from("<IQ", data, at)
    at += 12
    if of == _TEXT:
        for _ in range(size):
            at += 8 + int(struct.unpack_from("<Q", data, at)[0])
        return None, at
    code = f"<{size}{_NUMBERS[of]}"
    values = list(struct.unpack_from(code, data, at)) if size <= 1024 else None
    return values, at + struct.calcsize(code)


def _text(data: mmap.mmap, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    if at + 8 + size > len(data):
        raise ValueError("the file ends within a text")
    return data[at + 8 : at + 8 + size].decode("utf-8", errors="replace"), at + 8 + size
