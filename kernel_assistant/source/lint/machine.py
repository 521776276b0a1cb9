"""From a device's facts to what rules are told of it."""

from __future__ import annotations

from kernel_assistant.source.lint.hint import Machine
from kernel_assistant.targets.base import DeviceFacts

#: Ampere; the first with TF32.
_FIRST_TF32 = 80


def machine_of(facts: DeviceFacts | None, tf32_gain: str = "") -> Machine:
    """None is a device that nobody has looked for yet: rules that need one say nothing."""
    if facts is None:
        return Machine()
    number = facts.arch.removeprefix("sm_")
    tensor_cores = facts.target == "cuda" and number.isdigit() and int(number) >= _FIRST_TF32
    return Machine(name=facts.name, tensor_cores=tensor_cores, tf32_gain=tf32_gain)
