"""The file lock of each device, one for all processes of a user, so that jobs, training and tests share devices.

On CUDA the judge takes the lock itself, for each series of timed calls. On the CPU, where a waiting judge would keep
cores busy, the environment takes the lock for a whole timed evaluation. Builds hold the lock shared and go before
measurements; a language model holds it shared and lets measurements go first (docs/device_lock.md).
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path

from kernel_assistant.errors import Cancelled, MissingError
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.device_lock import DeviceLock

#: Environment variable with another folder for the locks. Processes with different folders do not wait for each other.
FOLDER = "KERNEL_ASSISTANT_DEVICE_LOCKS"
#: How long a measurement on the CPU waits for shared holders. Generating a piece of text takes less than a second, a
#: build a few seconds; after this time a model server that hangs is not waited for any more.
PATIENCE_SECONDS = 30.0


def lock_of(device: DeviceFacts) -> DeviceLock:
    """Returns the file lock of this device. Raises MissingError if the folder of the locks belongs to another user."""
    return DeviceLock(lock_folder(device.target, device.index))


def alone(device: DeviceFacts, cancel: threading.Event) -> AbstractContextManager[None]:
    """Holds the device's lock exclusively during the `with` block, in which something is measured. Raises Cancelled if
    `cancel` is set while it waits. (When the judge measures on CUDA, it takes the lock itself.)"""

    def check() -> None:
        if cancel.is_set():
            raise Cancelled("cancelled while it waited for the device")

    return lock_of(device).exclusive(check, patience=PATIENCE_SECONDS)


def lock_folder(target: str, index: int = 0) -> Path:
    """Returns the folder of a device's lock. For a GPU, its name is the driver's identifier of the GPU."""
    name = "cpu" if target == "cpu" else (_identities()[index : index + 1] or [f"cuda-{index}"])[0]
    return _folder() / name


def _folder() -> Path:
    chosen = os.environ.get(FOLDER)
    folder = Path(chosen or Path(tempfile.gettempdir(), f"kernel-assistant-{os.getuid()}", "devices"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = folder.stat().st_uid
    if owner != os.getuid():
        raise MissingError(f"{folder} belongs to user {owner}", f"name a folder of your own in {FOLDER}")
    return folder


@lru_cache(maxsize=1)
def _identities() -> list[str]:
    return list(cuda.identities())
