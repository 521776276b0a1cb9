"""Measures once what each device can reach at most (memory bandwidths, arithmetic rate, usable cache), and keeps these
limits in the cache folder."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec

from kernel_assistant.environment.device_locks import alone
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.targets.base import DeviceFacts

CALIBRATE_SECONDS = 120.0
#: A machine that was too busy is measured again after this time.
BUSY_SECONDS = 600.0


def ceilings_of(device: DeviceFacts) -> dict[str, float]:
    """Returns the measured limits of a device as a dict with the keys copy, read, datasheet (bandwidths), cache_bytes
    and flops, which the judge takes (`Roofline` of worker/measuring/roofline.py)."""
    return {
        "copy": device.copy_bandwidth,
        "read": device.read_bandwidth,
        "datasheet": device.bandwidth_datasheet,
        "cache_bytes": device.cache_bytes,
        "flops": device.flops_fp32,
    }


def with_ceilings(device: DeviceFacts, worker: WorkerClient, cache_dir: Path, cancel: threading.Event) -> DeviceFacts:
    """Returns `device` with its measured limits: those in the cache, or those that `worker` measures now.

    If other work on the machine disturbs the measurement, the bandwidths stay unknown for BUSY_SECONDS: if they were
    measured too low, honest kernels would seem impossibly fast.
    """
    known = known_ceilings(device, cache_dir) or _busy_lately(device, cache_dir)
    if known is not None:
        return known
    measured, quiet = measure_ceilings(device, worker, cancel)
    if not quiet:
        unknown = msgspec.structs.replace(device, cache_bytes=measured.cache_bytes)
        _write(_busy_path(device, cache_dir), unknown)
        return unknown
    keep_ceilings(measured, cache_dir)
    return measured


def must_be_measured(device: DeviceFacts, cache_dir: Path) -> bool:
    """Whether `with_ceilings` would have to measure now, which takes seconds."""
    return known_ceilings(device, cache_dir) is None and _busy_lately(device, cache_dir) is None


def measure_ceilings(device: DeviceFacts, worker: WorkerClient, cancel: threading.Event) -> tuple[DeviceFacts, bool]:
    """Measures the limits of a device. Returns `device` with these limits, and whether no other work disturbed the
    measurement."""
    params = {"target": device.target, "device": device.index, "cache_bytes": device.cache_bytes}
    with alone(device, cancel):
        measured = worker.call("calibrate", params, timeout=CALIBRATE_SECONDS, cancel=cancel)
    quiet = bool(measured.pop("quiet"))
    return msgspec.structs.replace(device, **measured), quiet


def keep_ceilings(device: DeviceFacts, cache_dir: Path) -> None:
    """Writes the measured limits of `device` to the cache folder."""
    _write(_path(device, cache_dir), device)


def known_ceilings(device: DeviceFacts, cache_dir: Path) -> DeviceFacts | None:
    """Returns `device` with the limits from the cache folder, None if there are none."""
    try:
        known = decode(_path(device, cache_dir).read_bytes(), DeviceFacts)
    except (OSError, UsageError):
        return None
    return msgspec.structs.replace(
        device,
        copy_bandwidth=known.copy_bandwidth,
        read_bandwidth=known.read_bandwidth,
        flops_fp32=known.flops_fp32,
        bandwidth_datasheet=device.bandwidth_datasheet or known.bandwidth_datasheet,
        cache_bytes=min(known.cache_bytes, device.cache_bytes),
    )


def _busy_lately(device: DeviceFacts, cache_dir: Path) -> DeviceFacts | None:
    """Returns `device` with unknown bandwidths if a measurement failed in the last BUSY_SECONDS because the machine was
    busy; else None."""
    path = _busy_path(device, cache_dir)
    try:
        if time.time() - path.stat().st_mtime > BUSY_SECONDS:
            return None
        return msgspec.structs.replace(device, cache_bytes=decode(path.read_bytes(), DeviceFacts).cache_bytes)
    except (OSError, UsageError):
        return None


def _busy_path(device: DeviceFacts, cache_dir: Path) -> Path:
    return _path(device, cache_dir).with_suffix(".busy.json")


def _write(path: Path, device: DeviceFacts) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(device))


def _path(device: DeviceFacts, cache_dir: Path) -> Path:
    # Files of earlier versions have no rate of a CPU's arithmetic.
    measured = "-2" if device.target == "cpu" else ""
    return cache_dir / "devices" / f"{device.key}{measured}.json"
