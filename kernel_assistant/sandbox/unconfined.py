"""No sandbox: resource limits and a clean environment only. Never chosen for the user, only by the user."""

from __future__ import annotations

from kernel_assistant.sandbox import launcher
from kernel_assistant.sandbox.contract import PROPERTIES, SandboxCommand, SandboxSpec

KEPT = {"environment", "descriptors", "names", "memory", "threads", "process_limit", "file_size", "timeout"}


class Unconfined:
    name = "none"
    lacks = frozenset(PROPERTIES) - KEPT
    explanation = (
        "no sandbox: generated code runs with all your rights; it can read and change your files, use the network and "
        "see other processes. Only limits on memory, file size and time hold"
    )

    def command(self, spec: SandboxSpec) -> SandboxCommand:
        argv = launcher.launcher_argv(spec, launcher.Confinement(filtered=False), scratch=spec.workspace or "/tmp")
        return SandboxCommand(argv=argv, env=launcher.minimal_env())
