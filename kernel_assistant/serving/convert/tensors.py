"""Names and layouts of a Llama's tensors in GGUF and in Hugging Face's format.

GGUF's Llama rotates pairs of neighbouring channels of a head (2i, 2i+1), Hugging Face's pairs (i, i + d/2), so the rows
of the query and key projections are ordered differently (`LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from kernel_assistant.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """Returns the name that a tensor with this Hugging Face name has in GGUF. Raises UsageError for a name that a Llama
    does not have."""
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", name)
    known = f"blk.{layer[1]}.{_IN_LAYER[layer[2]]}.weight" if layer and layer[2] in _IN_LAYER else _WHOLE.get(name)
    return known or _refuse(name, "serve the folder as it is, with vLLM")


def folder_name(name: str) -> str:
    """Returns the name that a tensor with this GGUF name has in Hugging Face's format. Raises UsageError for a name
    that a Llama does not have."""
    whole, in_layer = ({short: long for long, short in names.items()} for names in (_WHOLE, _IN_LAYER))
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    known = (
        f"model.layers.{layer[1]}.{in_layer[layer[2]]}.weight" if layer and layer[2] in in_layer else whole.get(name)
    )
    return known or _refuse(name, "serve the file as it is, with llama.cpp")


def _refuse(name: str, next_step: str) -> NoReturn:
    raise UsageError(f"tensor {name} does not belong to a plain Llama", next_step)


def heads_rotated(name: str, heads: int, kv_heads: int) -> int:
    """Returns the number of heads in the tensor with this GGUF name, if its rows are ordered differently in the two
    formats; 0 for other tensors."""
    return {"attn_q": heads, "attn_k": kv_heads}.get(name.rpartition(".weight")[0].rpartition(".")[2], 0)


def neighbours(weight: Array, heads: int) -> Array:
    """Reorders the rows of a (heads·d, k) matrix: interleaves the two halves of each head."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def halves(weight: Array, heads: int) -> Array:
    """Restores the order of rows: the inverse of `neighbours`."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
