"""Reads NVIDIA GPUs through NVIDIA's management library, numbered as CUDA sees them.

The library counts how often it was opened, so that `opened` may be nested and called in several threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def opened() -> Iterator[Any]:
    """Opens the library during the `with` block and yields it; yields None if there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def handles(nvml: Any) -> list[Any]:
    """Returns the library's handles of the GPUs that CUDA sees, in CUDA's order; none without a library. Raises
    NVMLError."""
    if nvml is None:
        return []
    known = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    words = os.environ.get("CUDA_VISIBLE_DEVICES")
    if words is None:
        return known
    return [known[index] for index in visible(words, [nvml.nvmlDeviceGetUUID(handle) for handle in known])]


def visible(words: str, uuids: Sequence[str]) -> list[int]:
    """Returns, in CUDA's order, the indices of the GPUs that CUDA sees if CUDA_VISIBLE_DEVICES is `words`. `uuids` are
    the UUIDs of all GPUs.

    Entries are numbers or prefixes of UUIDs; as in CUDA, entries from the first invalid one on are ignored. If `words`
    names parts of a GPU (MIG), all GPUs are returned.
    """
    if "MIG-" in words:
        return list(range(len(uuids)))
    indices: list[int] = []
    for word in (word.strip() for word in words.split(",")):
        meant = [int(word)] if word.isdigit() else [n for n, one in enumerate(uuids) if word and one.startswith(word)]
        if len(meant) != 1 or meant[0] >= len(uuids) or meant[0] in indices:
            break
        indices += meant
    return indices


def utilisation(nvml: Any, handle: Any) -> int | None:
    """Returns the utilisation of a GPU in per cent; None if the driver does not say."""
    try:
        return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except nvml.NVMLError:
        return None
