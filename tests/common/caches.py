"""Folders of builds and bandwidths, as the product keeps them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.targets import cpu
from kernel_assistant.targets.base import DeviceFacts

#: Bytes/s beyond what a busy machine measures and below what nothing can reach.
GENEROUS = 100e9


def known_cpu(cache_dir: Path) -> DeviceFacts:
    """This CPU, with ceilings that `cache_dir` then knows. Otherwise opening a module measures them: a second each time
    beside other tests, for on a busy machine they are not kept (`tests/environment/test_ceilings.py`)."""
    device = msgspec.structs.replace(cpu.facts(), copy_bandwidth=GENEROUS, read_bandwidth=GENEROUS)
    keep_ceilings(device, cache_dir)
    return device


def new_cache(folder: Path) -> Path:
    """`folder`, which knows the ceilings of this CPU."""
    known_cpu(folder)
    return folder
