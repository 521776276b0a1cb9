"""Reads the settings of PyTorch that library launches, and residual calls in CUDA graphs, have to follow."""

from __future__ import annotations

import torch


def tf32_flags() -> dict[str, bool]:
    """For cuBLASLt and cuDNN, whether PyTorch would now compute float32 products and convolutions in TF32.

    Reads the setting of each operation: the older `allow_tf32` raises if a program has used both kinds of settings.
    """
    return {
        "cublaslt": torch.backends.cuda.matmul.fp32_precision == "tf32",
        "cudnn": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
    }


def library_flags() -> dict[str, bool]:
    """The flags of `tf32_flags`, and `deterministic`: whether PyTorch's settings require bit-equal results in each
    run."""
    deterministic = torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    return {**tf32_flags(), "deterministic": deterministic}


def call_flags() -> dict[str, bool]:
    """The flags of `library_flags`, and the other settings by which PyTorch chooses the kernels of its operators."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return {
        **library_flags(),
        "flash": cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        "mem_efficient": cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        "math": cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
        "cudnn_attention": cuda.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
        "cudnn_enabled": cudnn.enabled,
        "benchmark": cudnn.benchmark,
        "recurrent": cudnn.rnn.fp32_precision == "tf32",  # type: ignore[attr-defined]
        "reduced": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "reduced_half": cuda.matmul.allow_fp16_reduced_precision_reduction,
    }
