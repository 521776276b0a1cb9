"""Which sizes of thread-block clusters a GPU supports."""

from __future__ import annotations

from kernel_assistant.generator.print.cuda.common import CLUSTERS
from kernel_assistant.targets.base import DeviceFacts


def clusters_of(device: DeviceFacts) -> tuple[int, ...]:
    """Returns the sizes of clusters that a GPU supports: up to 16 for compute capability 9 and 10, up to 8 for later
    ones, and only 1 for earlier ones.
    """
    number = device.arch.removeprefix("sm_").rstrip("af")
    major = int(number) // 10 if number.isdigit() else 0
    return tuple(size for size in CLUSTERS if size <= {9: 16, 10: 16}.get(major, 8 if major > 10 else 1))
