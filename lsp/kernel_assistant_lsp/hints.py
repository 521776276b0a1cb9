"""Hints of a document with what is known of this machine. For a thread."""

from __future__ import annotations

import functools

from lsprotocol.types import Diagnostic

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.gains import tf32_gain
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_lsp.configuration import Configuration
from kernel_assistant_lsp.features import diagnostics
from kernel_assistant_lsp.history import History
from kernel_assistant_lsp.snapshot import Snapshot


def hints(snapshot: Snapshot, history: History, configuration: Configuration) -> list[Diagnostic]:
    """Rules that need a device say nothing where there is none; what `ignore_hints` names is left out."""
    try:
        ignored = configuration.settings(snapshot.path).ignore_hints
    except KernelAssistantError:
        ignored = ()  # whoever starts a job is told what is wrong with the settings
    facts = device()
    gain = ""
    if facts is not None and facts.target == "cuda":
        try:
            gain = tf32_gain(history.store, facts.name)
        except KernelAssistantError:
            gain = ""  # the hint stands without its figure
    return diagnostics.find(snapshot, facts, tf32_gain=gain, ignore=ignored)


@functools.lru_cache(maxsize=1)
def device() -> DeviceFacts | None:
    """Looked for once: it does not change while a server runs."""
    try:
        return detect("auto")
    except KernelAssistantError:
        return None
