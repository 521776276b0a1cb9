"""Computes the least time that a device needs for a call of a task, and refuses measured times that are impossibly
short."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..device_lock import DeviceLock
from ..opening.open_task import OpenTask
from ..verifying.verification import ExpectedOutputs, IncorrectOutput
from .arithmetic import counted
from .calibrate import calibrate
from .roofline import MEASURED_SLACK, Roofline, floor_seconds, impossible
from .suspicion import MOST_AGAIN
from .traffic import Traffic


class PossibleTimes:
    """The least time of one task on a device with the bandwidths `ceilings` (the roofline), and a test for times that
    are impossibly short. `base` has the declared inputs, whose sizes are used."""

    def __init__(self, task: OpenTask, base: ExpectedOutputs, ceilings: Roofline, lock: DeviceLock) -> None:
        self.ceilings, self._lock, self._device = ceilings, lock, torch.device(task.device)
        used = {value["name"] for value in task.graph["inputs"]}
        given = [pair for pair in zip(task.input_names, base.tensors, strict=True) if pair[0] in used]
        traffic = Traffic.of(task.graph, base.dims, dict(given), base.constants)
        self.read_bytes = traffic.moved_bytes
        # A plan may compute something smaller from parameters, once, and read that at each call.
        self._changing_bytes = traffic.changing_bytes
        self.written_bytes = tensor_bytes(base.reference)
        self._flops = counted(lambda: task.call(*task.unflatten(base.tensors))) if ceilings.flops else 0
        self.floor_seconds = floor_seconds(self.read_bytes, self.written_bytes, ceilings, self._flops)

    def floor_of(self, seconds: float) -> float:
        """Returns the least possible seconds for a candidate that takes `seconds`: usually the roofline of the module.
        A candidate that is faster than this, by more than the errors of the bandwidths explain, does less work than the
        module; for it, only the bytes of inputs and outputs count."""
        least = floor_seconds(self._changing_bytes, self.written_bytes, self.ceilings)
        return self.floor_seconds if seconds >= self.floor_seconds / MEASURED_SLACK else min(least, self.floor_seconds)

    def too_fast(self, seconds: float, footprint: int) -> bool:
        """Whether a call in `seconds` is faster than the device can move the data. `footprint` is the size in bytes of
        all copies of inputs and outputs that are timed in turn; if they fit into the cache, the result is False."""
        return impossible(seconds, self._changing_bytes, self.written_bytes, footprint, self.ceilings)

    def require(self, seconds: float, footprint: int) -> None:
        """Raises IncorrectOutput if a call in `seconds` is faster than memory allows; `footprint` as for `too_fast`. If
        the datasheet's bandwidth is unknown, bandwidths are measured again first; if other work disturbs each of these
        measurements, the outcome is `inconclusive` instead of `cheating`."""
        if not self.too_fast(seconds, footprint):
            return
        sure = self.ceilings.datasheet > 0 or any(self.measure_ceilings() for _ in range(MOST_AGAIN))
        if self.too_fast(seconds, footprint):
            why = f"{seconds * 1e3:.4g} ms is faster than the device can move the data"
            raise (
                IncorrectOutput("cheating", why)
                if sure
                else IncorrectOutput("inconclusive", f"{why}, as measured on a busy machine")
            )

    def measure_ceilings(self) -> bool:
        """Measures the roofline's bandwidths again and keeps the higher values: other virtual machines on the host,
        which this one cannot see, may have slowed the first measurement. A candidate cannot raise the values. Returns
        whether the machine was quiet while they were measured."""
        known, device = self.ceilings, self._device
        with self._lock.exclusive():
            now = calibrate(device.type, device.index or 0, known.cache_bytes)
        copy, read = max(known.copy, now["copy_bandwidth"]), max(known.read, now["read_bandwidth"])
        self.ceilings = replace(known, copy=copy, read=read, flops=max(known.flops, now["flops_fp32"]))
        self.floor_seconds = floor_seconds(self.read_bytes, self.written_bytes, self.ceilings, self._flops)
        return bool(now["quiet"])


def tensor_bytes(tensors: list[torch.Tensor]) -> int:
    """Returns the number of bytes of all elements of the tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
