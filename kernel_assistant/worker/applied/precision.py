"""Reads the settings of PyTorch that library launches (cuBLASLt, cuDNN), and PyTorch's own operators in CUDA graphs,
have to follow."""

from __future__ import annotations

import torch

#: The setting of one kind of operation on a GPU. As an attribute of `torch.backends` it takes seven times as long.
_precision = torch._C._get_fp32_precision_getter


def tf32_flags() -> dict[str, bool]:
    """Returns, for "cublaslt" and "cudnn", whether PyTorch would now compute float32 products and convolutions in TF32.

    Reads the setting of each operation, because the older `allow_tf32` raises if a program has used both kinds of
    settings."""
    return {"cublaslt": _precision("cuda", "matmul") == "tf32", "cudnn": _precision("cuda", "conv") == "tf32"}


def library_flags() -> dict[str, bool]:
    """Returns the flags of `tf32_flags`, and `deterministic`: whether PyTorch's settings require bit-equal results in
    each run."""
    deterministic = torch._C._get_cudnn_deterministic() or torch.are_deterministic_algorithms_enabled()
    return {**tf32_flags(), "deterministic": deterministic}


def call_flags() -> dict[str, bool]:
    """Returns the flags of `library_flags`, and the other settings by which PyTorch chooses the kernels of its
    operators."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return {
        **library_flags(),
        "flash": cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        "mem_efficient": cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        "math": cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
        "cudnn_attention": cuda.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
        "cudnn_enabled": cudnn.enabled,
        "benchmark": cudnn.benchmark,
        "recurrent": _precision("cuda", "rnn") == "tf32",
        "reduced": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "reduced_half": cuda.matmul.allow_fp16_reduced_precision_reduction,
    }
