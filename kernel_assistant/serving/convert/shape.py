"""The hyperparameters of a Llama, read from and written to `config.json` and GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernel_assistant.errors import UsageError

_SERVE_FOLDER = "serve the folder as it is, with vLLM"


@dataclass(frozen=True)
class ModelShape:
    """The hyperparameters of a Llama. `context` is in tokens; `theta` is the base of the rotary embedding, `epsilon`
    the constant in the RMS norm."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    context: int
    theta: float
    epsilon: float
    tied: bool


def from_config(config: Mapping[str, Any]) -> ModelShape:
    """Reads the `config.json` of a Hugging Face folder. Raises UsageError if the model is not a plain Llama."""
    if config.get("model_type") != "llama":
        raise UsageError(f"model_type {config.get('model_type')!r} cannot be written as GGUF here", _SERVE_FOLDER)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", "default") != "default":
        raise UsageError(f"rope_type {rope['rope_type']!r} cannot be written as GGUF here", _SERVE_FOLDER)
    odd = [name for name in ("attention_bias", "mlp_bias") if config.get(name)]
    if odd or config.get("hidden_act", "silu") != "silu":
        raise UsageError("a Llama with biases or without SiLU cannot be written as GGUF here", _SERVE_FOLDER)
    heads = int(config["num_attention_heads"])
    return ModelShape(
        vocabulary=int(config["vocab_size"]),
        width=int(config["hidden_size"]),
        inner=int(config["intermediate_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_width=int(config.get("head_dim") or config["hidden_size"] // heads),
        context=int(config["max_position_embeddings"]),
        theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        epsilon=float(config["rms_norm_eps"]),
        tied=bool(config.get("tie_word_embeddings")),
    )


def to_config(shape: ModelShape, special: Mapping[str, int | None]) -> dict[str, Any]:
    """Returns the content of `config.json`; `special` has the ids of bos, eos and pad."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "max_position_embeddings": shape.context,
        # Written in two forms: transformers 5 reads the first, older versions the second.
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "rope_theta": shape.theta,
        "rms_norm_eps": shape.epsilon,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        **{f"{name}_token_id": value for name, value in special.items()},
    }


def from_metadata(fields: Mapping[str, Any], tied: bool) -> ModelShape:
    """Reads the shape of a model from the metadata of a GGUF file. `tied`: whether input and output embeddings are the
    same. Raises UsageError unless the architecture is "llama" with rotary embeddings that are not scaled."""
    architecture = fields.get("general.architecture")
    if architecture != "llama" or fields.get("llama.rope.scaling.type", "none") != "none":
        raise UsageError(
            f"a GGUF of architecture {architecture!r} cannot become a folder here", "serve it with --engine llama.cpp"
        )
    heads, width = int(fields["llama.attention.head_count"]), int(fields["llama.embedding_length"])
    return ModelShape(
        vocabulary=len(fields["tokenizer.ggml.tokens"]),
        width=width,
        inner=int(fields["llama.feed_forward_length"]),
        layers=int(fields["llama.block_count"]),
        heads=heads,
        kv_heads=int(fields.get("llama.attention.head_count_kv", heads)),
        head_width=int(fields.get("llama.attention.key_length", width // heads)),
        context=int(fields["llama.context_length"]),
        theta=float(fields.get("llama.rope.freq_base", 10000.0)),
        epsilon=float(fields["llama.attention.layer_norm_rms_epsilon"]),
        tied=tied,
    )


def summary(shape: ModelShape) -> dict[str, Any]:
    """Returns the hyperparameters for display and for JSON."""
    return asdict(shape)
