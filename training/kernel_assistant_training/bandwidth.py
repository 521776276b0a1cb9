"""The device's bandwidths, before several workers use it: prompts and observations name the floor."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings, measure_ceilings
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.targets.base import DeviceFacts

TRIES = 3


def folder_with_bandwidth(device: DeviceFacts, worker: Worker, cache: Path, own: Path, cancel: threading.Event) -> Path:
    """`cache` where they are known or can be measured now; on a machine that is never quiet `own`, with the best of
    some measurements, so that they are no one else's."""
    for folder in (cache, own):
        if known_ceilings(device, folder) is not None:
            return folder
    if not worker.hello:
        worker.start(cancel)
    tries = []
    for _ in range(TRIES):
        found, quiet = measure_ceilings(device, worker, cancel)
        if quiet:
            keep_ceilings(found, cache)
            return cache
        tries.append(found)
    keep_ceilings(best_of(device, tries), own)
    return own


def best_of(device: DeviceFacts, tries: Sequence[DeviceFacts]) -> DeviceFacts:
    """The device with the highest bandwidths of some measurements on a machine that is never quiet: other work only
    ever lowers them."""
    return msgspec.structs.replace(
        device,
        copy_bandwidth=max(one.copy_bandwidth for one in tries),
        read_bandwidth=max(one.read_bandwidth for one in tries),
    )
