"""Where PyTorch uses TF32 for float32: what library launches follow."""

from __future__ import annotations

import torch


def tf32_flags() -> dict[str, bool]:
    """By library, whether PyTorch would compute float32 products and convolutions in TF32 now.

    Asked of the settings for one operation each: the older `allow_tf32` refuses to answer where both kinds were used.
    """
    return {
        "cublaslt": torch.backends.cuda.matmul.fp32_precision == "tf32",
        "cudnn": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
    }
