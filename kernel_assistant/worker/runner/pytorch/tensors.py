"""Maps the dtype names of plans to torch dtypes, and existing memory to tensors. Needs torch; copied into applied
packages."""

from __future__ import annotations

from typing import Any

import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b1": torch.bool,
}


class CudaArrayInterface:
    """An object over `size` bytes of GPU memory at `address`, with the attribute `__cuda_array_interface__`, from which
    `torch.as_tensor` makes a tensor without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
