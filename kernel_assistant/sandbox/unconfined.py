"""The backend without a sandbox: only resource limits and a clean environment. Used only if the user chooses it."""

from __future__ import annotations

import os

from kernel_assistant.sandbox import launcher
from kernel_assistant.sandbox.contract import PROPERTIES, SandboxCommand, SandboxSpec

KEPT = {
    *("environment", "descriptors", "names", "threads", "process_limit", "file_size", "timeout"),
    *("compile_cpp", "compile_cuda"),
}


class Unconfined:
    name = "none"
    explanation = (
        "no sandbox: generated code runs with all your rights; it can read and change your files, use the network and "
        "see other processes. Only limits on memory, file size and time hold"
    )

    def __init__(self) -> None:
        as_root = os.geteuid() == 0
        self.lacks = frozenset(PROPERTIES) - KEPT - (set() if as_root else {"thread_limit"})

    def command(self, spec: SandboxSpec) -> SandboxCommand:
        argv = launcher.launcher_argv(spec, launcher.Confinement(filtered=False), scratch=spec.workspace or "/tmp")
        return SandboxCommand(argv=argv, env=launcher.minimal_env())
