"""The header of a GGUF file, and the context that a model gets of it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.serving.llama.gguf_header import GgufHeader, read_header
from kernel_assistant.serving.llama.llama import DEFAULT_CONTEXT, SLOTS, context_and_slots
from kernel_assistant.serving.registry import SHIPPED

GIB = 1 << 30
#: As of a model of 7 B: 28 layers, four heads of 128 for keys and values: 56 KiB a token.
LARGE: dict[str, Any] = {
    "general.architecture": "qwen2",
    "qwen2.context_length": 131_072,
    "qwen2.block_count": 28,
    "qwen2.embedding_length": 3584,
    "qwen2.attention.head_count": 28,
    "qwen2.attention.head_count_kv": 4,
    "tokenizer.ggml.tokens": [f"word{number}" for number in range(2000)],
    "tokenizer.ggml.scores": [0.5] * 2000,
    "tokenizer.chat_template": "{{ messages }}",
}


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    match value:
        case str():
            return struct.pack("<I", 8) + _text(value)
        case int():
            return struct.pack("<II", 4, value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
        case [int(), *_]:
            return struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value)
        case _:
            return struct.pack(f"<IIQ{len(value)}f", 9, 6, len(value), *value)


def _file(folder: Path, fields: dict[str, Any]) -> Path:
    path = folder / "model.gguf"
    written = b"".join(_text(name) + _value(value) for name, value in fields.items())
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + written)
    return path


def test_the_shipped_model_says_what_it_was_made_for() -> None:
    assert read_header(SHIPPED) == GgufHeader(
        context=4096, token_bytes=8 * 2 * 128 * 2, chat_template=True, name="kernel-assistant", language="schedule"
    )


def test_a_large_model(tmp_path: Path) -> None:
    assert read_header(_file(tmp_path, LARGE)) == GgufHeader(131_072, 28 * 4 * 256 * 2, True)
    by_layer = LARGE | {"qwen2.attention.head_count_kv": [4, 2] * 14, "qwen2.attention.key_length": 256}
    by_layer.pop("tokenizer.chat_template")
    assert read_header(_file(tmp_path, by_layer)) == GgufHeader(131_072, 28 * 4 * (256 + 128) * 2, False)


def test_what_is_no_such_file(tmp_path: Path) -> None:
    path = _file(tmp_path, LARGE)
    whole = path.read_bytes()
    for size in (0, 3, 20, 24, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert read_header(path) is None
    path.write_bytes(b"GGML" + whole[4:])
    assert read_header(path) is None and read_header(tmp_path) is None and read_header(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("wanted", "free", "given"),
    [
        (0, 1024 * GIB, (131_072, SLOTS)),
        (0, 64 * GIB, (131_072, 2)),
        (0, 8 * GIB, (37_449, 1)),
        (0, GIB // 2, (DEFAULT_CONTEXT, 1)),
        (16_384, 16 * GIB, (16_384, SLOTS)),
        (200_000, GIB, (200_000, 1)),
    ],
)
def test_a_context_has_room_in_memory(tmp_path: Path, wanted: int, free: int, given: tuple[int, int]) -> None:
    assert context_and_slots(_file(tmp_path, LARGE), wanted, free) == given


def test_a_file_that_says_nothing_gets_the_least(tmp_path: Path) -> None:
    path = _file(tmp_path, {"general.architecture": "odd"})
    assert context_and_slots(path, 0, GIB) == (DEFAULT_CONTEXT, SLOTS)
    assert context_and_slots(path, 9000, GIB) == (9000, SLOTS)
