"""Bandwidths and usable cache of each device, measured once and kept in the cache folder."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from kernel_assistant.environment.device_locks import alone
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.targets.base import DeviceFacts

CALIBRATE_SECONDS = 120.0


def ceilings_of(device: DeviceFacts) -> dict[str, float]:
    """What the judge is told of a device (`Ceilings` of worker/roofline.py)."""
    return {
        "copy": device.copy_bandwidth,
        "read": device.read_bandwidth,
        "datasheet": device.bandwidth_datasheet,
        "cache_bytes": device.cache_bytes,
    }


def with_ceilings(device: DeviceFacts, worker: Worker, cache_dir: Path, cancel: threading.Event) -> DeviceFacts:
    """`device` with its measured bandwidths: from the cache, else measured now by `worker`.

    On a busy machine they stay unknown: too low a ceiling would call honest kernels impossible.
    """
    known = known_ceilings(device, cache_dir)
    if known is not None:
        return known
    found, quiet = measure_ceilings(device, worker, cancel)
    if not quiet:
        return msgspec.structs.replace(device, cache_bytes=found.cache_bytes)
    keep_ceilings(found, cache_dir)
    return found


def measure_ceilings(device: DeviceFacts, worker: Worker, cancel: threading.Event) -> tuple[DeviceFacts, bool]:
    """`device` with the bandwidths that it has now, and whether nobody else used the machine meanwhile."""
    params = {"target": device.target, "device": device.index, "cache_bytes": device.cache_bytes}
    with alone(device, cancel):
        measured = worker.call("calibrate", params, timeout=CALIBRATE_SECONDS, cancel=cancel)
    quiet = bool(measured.pop("quiet"))
    return msgspec.structs.replace(device, **measured), quiet


def keep_ceilings(device: DeviceFacts, cache_dir: Path) -> None:
    """For all who use this folder."""
    path = _path(device, cache_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(device))


def known_ceilings(device: DeviceFacts, cache_dir: Path) -> DeviceFacts | None:
    """`device` with the bandwidths that were measured before, None where they were not."""
    try:
        known = decode(_path(device, cache_dir).read_bytes(), DeviceFacts)
    except (OSError, UsageError):
        return None
    return msgspec.structs.replace(
        device,
        copy_bandwidth=known.copy_bandwidth,
        read_bandwidth=known.read_bandwidth,
        bandwidth_datasheet=device.bandwidth_datasheet or known.bandwidth_datasheet,
        cache_bytes=min(known.cache_bytes, device.cache_bytes),
    )


def _path(device: DeviceFacts, cache_dir: Path) -> Path:
    return cache_dir / "devices" / f"{device.key}.json"
