"""Sizes of clusters that a GPU has."""

from __future__ import annotations

from kernel_assistant.generator.print.cuda.common import CLUSTERS
from kernel_assistant.targets.base import DeviceFacts


def clusters_of(device: DeviceFacts) -> tuple[int, ...]:
    """Sizes of clusters that a GPU has: Hopper up to 16, later ones 8, earlier ones none."""
    number = device.arch.removeprefix("sm_").rstrip("af")
    major = int(number) // 10 if number.isdigit() else 0
    return tuple(size for size in CLUSTERS if size <= {9: 16, 10: 16}.get(major, 8 if major > 10 else 1))
