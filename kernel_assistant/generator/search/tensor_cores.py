"""Decides on which GPUs a float32 product of split operands on tensor cores is faster than the float32 product
itself."""

from __future__ import annotations

from kernel_assistant.targets.base import DeviceFacts

#: Architectures with at least seven times as many operations a second in TF32 as in float32 (data sheets of A100, H100,
#: B200 and B300). Others have at most twice as many, and a product takes three.
FAST_TF32 = frozenset(("sm_80", "sm_90", "sm_100", "sm_103"))


def splits_products(device: DeviceFacts) -> bool:
    """Whether large products are split on this device (`plan/split_products.py`)."""
    return device.arch.rstrip("af") in FAST_TF32
