"""Converts a GGUF file to a Hugging Face folder in float32, which represents the 8-bit weights exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.shape import ModelShape, from_metadata, to_config
from kernel_assistant.serving.convert.tensors import folder_name, halves, heads_rotated
from kernel_assistant.serving.convert.tokens import Vocabulary, tokenizer_config, tokenizer_json
from kernel_assistant.serving.llama.gguf_header import LANGUAGE_FIELD

if TYPE_CHECKING:
    from kernel_assistant.serving.convert.tensors import Array


def to_folder(file: Path, folder: Path) -> None:
    """Writes the model in the GGUF file `file` to `folder`. Raises UsageError if the model is not a plain Llama with a
    byte-level BPE."""
    reader = open_gguf(file)
    fields = metadata(reader)
    shape, words = shape_of(reader), _vocabulary(fields)
    documents = {
        "config.json": {**to_config(shape, words.special), **_language(fields)},
        "generation_config.json": {f"{name}_token_id": number for name, number in words.special.items()},
        "tokenizer.json": tokenizer_json(words),
        "tokenizer_config.json": tokenizer_config(words, shape.context),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
    if words.template:
        (folder / "chat_template.jinja").write_text(words.template, encoding="utf-8")
    weights = {folder_name(tensor.name): _weight(tensor, shape) for tensor in reader.tensors}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


def _language(fields: dict[str, Any]) -> dict[str, str]:
    return {LANGUAGE_FIELD: fields[LANGUAGE_FIELD]} if LANGUAGE_FIELD in fields else {}


def open_gguf(file: Path) -> gguf.GGUFReader:
    """Opens a GGUF file. Raises UsageError if `file` is not a GGUF file."""
    try:
        return gguf.GGUFReader(file)
    except (OSError, ValueError, IndexError) as error:
        raise UsageError(f"{file} is not a GGUF file: {error}", "check the file, or get it again") from error


def metadata(reader: gguf.GGUFReader) -> dict[str, Any]:
    """Returns every field of the header, as plain Python values."""
    return {name: field.contents() for name, field in reader.fields.items()}


def shape_of(reader: gguf.GGUFReader) -> ModelShape:
    """Returns the hyperparameters of the model. If the file has no output matrix, the embeddings are tied. Raises
    UsageError for another architecture."""
    return from_metadata(metadata(reader), tied=all(tensor.name != "output.weight" for tensor in reader.tensors))


def _weight(tensor: gguf.ReaderTensor, shape: ModelShape) -> Array:
    try:
        weight: Array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise UsageError(
            f"weights of type {tensor.tensor_type.name} cannot be read here", "serve it with --engine llama.cpp"
        ) from error
    heads = heads_rotated(tensor.name, shape.heads, shape.kv_heads)
    return np.ascontiguousarray(halves(weight, heads) if heads else weight)


def _vocabulary(fields: dict[str, Any]) -> Vocabulary:
    if fields.get("tokenizer.ggml.model") != "gpt2":
        raise UsageError(
            f"a tokenizer of kind {fields.get('tokenizer.ggml.model')!r} cannot become a folder here",
            "serve it with --engine llama.cpp",
        )
    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return Vocabulary(
        tokens=tuple(fields["tokenizer.ggml.tokens"]),
        types=tuple(fields["tokenizer.ggml.token_type"]),
        merges=tuple(fields["tokenizer.ggml.merges"]),
        splitter=fields.get("tokenizer.ggml.pre", "gpt-2"),
        special={short: fields.get(f"tokenizer.ggml.{long}_token_id") for short, long in names.items()},
        template=fields.get("tokenizer.chat_template", ""),
    )
