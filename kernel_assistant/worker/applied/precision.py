"""The settings by which PyTorch uses TF32 for float32; library launches follow them."""

from __future__ import annotations

import torch


def tf32_flags() -> dict[str, bool]:
    """By library, whether PyTorch would compute float32 products and convolutions in TF32 now.

    Reads the setting of each operation: the older `allow_tf32` raises if a program has used both kinds of settings.
    """
    return {
        "cublaslt": torch.backends.cuda.matmul.fp32_precision == "tf32",
        "cudnn": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
    }
