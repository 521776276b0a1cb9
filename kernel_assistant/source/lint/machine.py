"""Converts a device's facts to the traits that rules use."""

from __future__ import annotations

from kernel_assistant.source.lint.hint import DeviceTraits
from kernel_assistant.targets.base import DeviceFacts

#: Compute capability of Ampere, the first architecture with TF32.
_FIRST_TF32 = 80


def machine_of(facts: DeviceFacts | None, tf32_gain: str = "") -> DeviceTraits:
    """Returns the traits. None is an unknown device, for which rules that need a device give no hints."""
    if facts is None:
        return DeviceTraits()
    number = facts.arch.removeprefix("sm_")
    tensor_cores = facts.target == "cuda" and number.isdigit() and int(number) >= _FIRST_TF32
    return DeviceTraits(name=facts.name, tensor_cores=tensor_cores, tf32_gain=tf32_gain)
