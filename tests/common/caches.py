"""Folders of builds and bandwidths, as the product keeps them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.targets import cpu
from kernel_assistant.targets.base import DeviceFacts
from tests.common.builds import FOLDER

#: Bytes/s that two cores do not reach, so that nothing is at its limit, and those that no processor does.
FAST, IMPOSSIBLE = 40e9, 115e9
#: What two cores get of a cache that a processor's 64 share; `tests/worker/test_calibrate.py` measures it.
CACHE_BYTES = 32 << 20
#: Folders of binaries by their content: of plans, and of free-form files.
SHARED = ("builds", "freeform")


def known_cpu(cache_dir: Path) -> DeviceFacts:
    """This CPU, with given bandwidths that are written to `cache_dir`. Without them every opening of a module would
    measure them for a second, because on a busy machine they are not stored (`tests/environment/test_ceilings.py`).
    """
    facts = cpu.facts()
    given = {"copy_bandwidth": FAST, "read_bandwidth": FAST, "bandwidth_datasheet": IMPOSSIBLE}
    device = msgspec.structs.replace(facts, cache_bytes=min(facts.cache_bytes, CACHE_BYTES), **given)
    keep_ceilings(device, cache_dir)
    return device


def new_cache(folder: Path) -> Path:
    """Returns `folder` as a cache that has the bandwidths of this CPU and the builds of all tests, including those of
    earlier runs.
    """
    known_cpu(folder)
    for name in SHARED:
        builds, shared = folder / name, FOLDER / name
        if not builds.exists():
            shared.mkdir(parents=True, exist_ok=True)
            builds.symlink_to(shared, target_is_directory=True)
    return folder
