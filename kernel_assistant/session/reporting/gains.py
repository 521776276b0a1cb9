"""Gains that earlier jobs measured for free wins (speed-ups without kernels, such as TF32). Front ends mention them in
hints before a job has run."""

from __future__ import annotations

from kernel_assistant.config import Settings
from kernel_assistant.errors import MissingError
from kernel_assistant.source.lint import DeviceTraits
from kernel_assistant.source.lint.hint import machine_of
from kernel_assistant.store import JobState, Store
from kernel_assistant.targets.detect import detect

#: The number of newest jobs that are searched.
_MOST = 200


def machine_here(settings: Settings) -> DeviceTraits:
    """Returns the facts about the device for jobs that hints depend on; all empty if there is no device. Does not
    create a state folder. Raises StoreError."""
    try:
        facts = detect(settings.target)
    except MissingError:
        return DeviceTraits()
    known = (settings.state_dir / "store.sqlite").exists()
    return machine_of(facts, tf32_gain(Store(settings.state_dir), facts.name) if known else "")


def tf32_gain(store: Store, device: str) -> str:
    """Describes how much faster TF32 was than plain torch.compile in earlier jobs on the device named `device`; "" if
    no job measured it. Raises StoreError."""
    rows = [row.result for row in store.jobs(limit=_MOST, states=(JobState.done,)) if row.result is not None]
    gains = sorted(
        win.speedup_vs_compile
        for result in rows
        if result.device == device
        for win in result.free_wins
        if win.name == "tf32" and win.speedup_vs_compile is not None
    )
    if not gains:
        return ""
    if len(gains) == 1:
        return f"torch.compile was {gains[0]:.2f} times as fast with it in the job that measured it here"
    return f"torch.compile was {gains[0]:.2f} to {gains[-1]:.2f} times as fast with it in {len(gains)} jobs here"
