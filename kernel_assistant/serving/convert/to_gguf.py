"""Converts a Hugging Face folder to one GGUF file with 8-bit weights (q8_0: 32 weights share a float16 scale)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
import safetensors

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.shape import ModelShape, from_config
from kernel_assistant.serving.convert.tensors import gguf_name, heads_rotated, neighbours
from kernel_assistant.serving.convert.tokens import Vocabulary, read_vocabulary
from kernel_assistant.serving.llama.gguf_header import LANGUAGE_FIELD
from kernel_assistant.serving.template import without_marks

if TYPE_CHECKING:
    from kernel_assistant.serving.convert.tensors import Array

_Q8 = gguf.GGMLQuantizationType.Q8_0
_F32 = gguf.GGMLQuantizationType.F32
_BLOCK = 32


def to_gguf(folder: Path, file: Path, *, name: str = "") -> None:
    """Writes the model of a Hugging Face folder to the GGUF file `file`, under the name `name` ("": that of the
    folder). Matrices become q8_0, vectors stay float32. Raises UsageError if the model is no plain Llama."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is no Hugging Face folder: {error}", "name one with config.json") from error
    shape = from_config(config)
    words = read_vocabulary(folder, shape.vocabulary)
    writer = gguf.GGUFWriter(str(file), "llama")
    _describe(writer, shape, name or folder.name)
    if config.get(LANGUAGE_FIELD):
        writer.add_string(LANGUAGE_FIELD, config[LANGUAGE_FIELD])
    _add_vocabulary(writer, words)
    for long, weight in _weights(folder):
        if long == "lm_head.weight" and shape.tied:
            continue
        _add(writer, gguf_name(long), weight, shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, shape: ModelShape, name: str) -> None:
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)


def _add_vocabulary(writer: gguf.GGUFWriter, words: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words.splitter)
    writer.add_token_list(list(words.tokens))
    writer.add_token_types(list(words.types))
    writer.add_token_merges(list(words.merges))
    for name, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        number = words.special[name]
        if number is not None:
            add(number)
    writer.add_add_bos_token(False)
    if words.template:
        writer.add_chat_template(without_marks(words.template))


def _add(writer: gguf.GGUFWriter, name: str, weight: Array, shape: ModelShape) -> None:
    heads = heads_rotated(name, shape.heads, shape.kv_heads)
    if heads:
        weight = neighbours(weight, heads)
    kind = _Q8 if weight.ndim == 2 and weight.shape[1] % _BLOCK == 0 else _F32
    writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(weight), kind), raw_dtype=kind)


def _weights(folder: Path) -> Iterator[tuple[str, Array]]:
    """Yields every tensor of every file as float32, sorted by name."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UsageError(f"{folder} holds no .safetensors file", "save the model with save_pretrained")
    for file in files:
        try:
            parts = safetensors.deserialize(file.read_bytes())  # type: ignore[no-untyped-call]
        except safetensors.SafetensorError as error:
            raise UsageError(f"cannot read {file}: {error}", "save the model again") from error
        for name, tensor in sorted(parts, key=lambda part: part[0]):
            yield name, _float32(tensor["data"], tensor["dtype"]).reshape(tensor["shape"])


def _float32(data: bytes, dtype: str) -> Array:
    if dtype == "BF16":
        # numpy has no bfloat16, which is the upper half of a float32.
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype not in ("F16", "F32", "F64"):
        raise UsageError(f"weights of type {dtype} cannot be written as GGUF here", "save the model as float32")
    return np.frombuffer(data, {"F16": np.float16, "F32": np.float32, "F64": np.float64}[dtype]).astype(np.float32)
