"""The hints (advice about slow code) of a document, for the device of this machine. Call the functions in a thread."""

from __future__ import annotations

import functools

from lsprotocol.types import Diagnostic

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.reporting.gains import tf32_gain
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_lsp.configuration import Configuration
from kernel_assistant_lsp.features import diagnostics
from kernel_assistant_lsp.history import History
from kernel_assistant_lsp.text.snapshot import Snapshot


def hints(snapshot: Snapshot, history: History, configuration: Configuration) -> list[Diagnostic]:
    """Returns the hints of a document as diagnostics. Rules that need a device give no hints if there is none. Leaves
    out the hints that the setting `ignore_hints` names, and those in classes with applied kernels, whose slow code does
    not run."""
    try:
        ignored = configuration.settings(snapshot.path).ignore_hints
    except KernelAssistantError:
        ignored = ()  # starting a job reports what is wrong with the settings
    facts = device()
    gain = ""
    if facts is not None and facts.target == "cuda":
        try:
            gain = tf32_gain(history.store, facts.name)
        except KernelAssistantError:
            gain = ""  # the hint is shown without its measured gain
    hinted = diagnostics.find(snapshot, facts, tf32_gain=gain, ignore=ignored)
    states = history.of(snapshot.path).states
    served = {name for name, state in states.items() if state.applied and not state.stale}
    return [one for one in hinted if diagnostics.class_of(one) not in served]


@functools.lru_cache(maxsize=1)
def device() -> DeviceFacts | None:
    """Return the device, None if there is none. It is detected once, since it does not change while a server runs."""
    try:
        return detect("auto")
    except KernelAssistantError:
        return None
