"""The Landlock backend, together with seccomp, for machines without namespaces (containers, hardened kernels)."""

from __future__ import annotations

import os

from kernel_assistant.errors import MissingError, SandboxError
from kernel_assistant.sandbox import launch, launcher, system
from kernel_assistant.sandbox.contract import SandboxCommand, SandboxSpec
from kernel_assistant.sandbox.mounts import inside
from kernel_assistant.sandbox.paths import own_interpreter_paths

TRUNCATION_ABI = 3
SIGNAL_SCOPE_ABI = 6
NEWEST_ABI = 6


class Landlock:
    """The Landlock backend. The constructor raises MissingError if the kernel has no Landlock. `abi` limits it to an
    older version of Landlock's interface."""

    name = "landlock"
    explanation = (
        "landlock with seccomp: no network, only listed files; other processes' ids and other files' existence "
        "can be found out, and there is no private /tmp"
    )

    def __init__(self, abi: int | None = None) -> None:
        self.abi = min(launch.landlock_abi(), abi if abi is not None else NEWEST_ABI)
        if self.abi < 1:
            raise MissingError("this kernel has no Landlock", "use Linux 5.13 or newer with Landlock enabled")
        lacks = {"metadata_hidden", "private_tmp", "processes_hidden", "kill_tree"}
        self.lacks = frozenset(lacks | {"thread_limit"} if os.geteuid() == 0 else lacks)

    def command(self, spec: SandboxSpec) -> SandboxCommand:
        workspace = spec.workspace
        if workspace is not None and any(inside(os.path.realpath(path), workspace) for path in spec.read_only):
            raise SandboxError(f"Landlock cannot protect a path inside the workspace {workspace!r}")
        confinement = launcher.Confinement(
            rules=_rules(spec),
            landlock_abi=self.abi,
            signal_scope=self.abi >= SIGNAL_SCOPE_ABI,
            truncation_free=self.abi < TRUNCATION_ABI,
        )
        argv = launcher.launcher_argv(spec, confinement, scratch=workspace or "/nonexistent")
        return SandboxCommand(argv=argv, env=launcher.minimal_env())


def _rules(spec: SandboxSpec) -> tuple[tuple[str, str], ...]:
    optional = [*system.SYSTEM, *system.SETTINGS, *system.PROCESS_FACTS]
    modified = [*system.DEVICES]
    if spec.gpu:
        optional += [*system.GPU_FACTS, *system.driver_paths(os.environ)]
        # The driver sets the names of its threads, in /proc/self.
        modified += [*system.gpu_devices(), "/proc/self"]
    for path in (*spec.read_only, *([spec.workspace] if spec.workspace else [])):
        if not os.path.exists(path):
            raise MissingError(f"{path!r} does not exist", "create it, or leave it out")
    reads = (*optional, *own_interpreter_paths(), launcher.LAUNCH, *spec.read_only)
    rules = [(path, "read") for path in reads] + [(path, "modify") for path in modified]
    return tuple(rules + ([(spec.workspace, "write")] if spec.workspace else []))
