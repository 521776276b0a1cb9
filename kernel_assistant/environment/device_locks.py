"""Where the lock of a device is: one for all processes of a user, so that jobs, training and tests share devices.

On CUDA the judge takes the lock itself, for each timed block or round. On the CPU, where a judge that waits would keep
cores busy, its client takes it for a whole timed evaluation. Builders share the processor before anybody is timed,
what writes text lets those pass that wait to be timed (docs/device_lock.md).
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

#: Names another folder for the locks: processes with different ones do not wait for each other.
FOLDER = "KERNEL_ASSISTANT_DEVICE_LOCKS"
#: How long what is to be timed on the processor waits for others who use it. A stretch of text takes less than a
#: second, a build some; an engine that hangs holds nobody up for longer.
PATIENCE_SECONDS = 30.0


def lock_of(device: DeviceFacts) -> DeviceLock:
    """A lock for this device. Raises MissingError where somebody else owns the folder."""
    return DeviceLock(lock_folder(device.target, device.index))


def alone(device: DeviceFacts, cancel: threading.Event) -> AbstractContextManager[None]:
    """The device for what is timed on it; a judge on CUDA takes it itself. Raises Cancelled."""

    def check() -> None:
        if cancel.is_set():
            raise Cancelled("cancelled while it waited for the device")

    return lock_of(device).exclusive(check, patience=PATIENCE_SECONDS)


def lock_folder(target: str, index: int = 0) -> Path:
    """Of the processor, or of a GPU under the name that the driver gives it."""
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
