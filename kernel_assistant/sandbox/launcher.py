"""Makes the argument vector that runs `launch.py` with a policy. Backends put these arguments before the command."""

from __future__ import annotations

import base64
import json
import os
import sys
from dataclasses import dataclass

from kernel_assistant.sandbox import seccomp, syscalls, system
from kernel_assistant.sandbox.contract import GIB, SandboxSpec

LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")
# Without a virtual environment: the launcher needs only the standard library, and fewer folders are visible.
PYTHON = os.path.realpath(sys.executable)

EXIT_SETUP = 125
EXIT_NOT_FOUND = 127

# Addresses reserved for each core: a thread's stack (8 MiB), the allocator's arena (64 MiB), and some for libraries.
ADDRESSES_PER_CORE = 80 << 20
ADDRESSES_OF_LIBRARIES = 1 * GIB


@dataclass(frozen=True)
class Confinement:
    """The restrictions that `launch.py` applies besides limits and the environment. `rules` are the rules of Landlock;
    None for no rules."""

    filtered: bool = True
    namespaces: bool = False
    signal_scope: bool = False
    truncation_free: bool = False
    rules: tuple[tuple[str, str], ...] | None = None
    landlock_abi: int = 0
    tasks_limited: bool = True


def launcher_argv(spec: SandboxSpec, how: Confinement, *, scratch: str, launch: str = LAUNCH) -> tuple[str, ...]:
    """Returns the argument vector. `scratch` is the value of HOME and TMPDIR; `launch` is the path of launch.py in
    the sandbox."""
    policy = {
        "env": {**minimal_env(), "HOME": scratch, "TMPDIR": scratch, **_gpu_env(spec), **spec.env},
        "cwd": spec.cwd or spec.workspace or "/",
        "limits": resource_limits(spec),
        "tasks": {
            "limit": spec.limits.processes if how.tasks_limited else None,
            "add_existing": not how.namespaces,
        },
        "landlock": how.rules,
        "landlock_abi": how.landlock_abi,
        "drop_capabilities": how.filtered,
        "die_with_parent": not how.namespaces,
        "supervise": not how.namespaces and (spec.allow_fork or not how.filtered),
        **_filter(spec, how),
    }
    return (PYTHON, "-I", "-S", launch, json.dumps(policy), "--", *spec.argv)


def _gpu_env(spec: SandboxSpec) -> dict[str, str]:
    return system.gpu_env(os.environ) if spec.gpu else {}


def minimal_env() -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def resource_limits(spec: SandboxSpec) -> dict[str, int]:
    """Returns the limits by RLIMIT name without the prefix. With a GPU there is no limit AS (address space), because
    CUDA reserves far more addresses than it uses."""
    limits = spec.limits
    values = {
        # With 0 the kernel would still start the program of a core_pattern with a pipe; with 1 it does nothing.
        "CORE": 1,
        "CPU": limits.cpu_seconds,
        "FSIZE": limits.file_bytes,
        "NOFILE": limits.open_files,
        "DATA": limits.memory_bytes,
    }
    if not spec.gpu:
        values["AS"] = address_bytes(spec)
    return values


def address_bytes(spec: SandboxSpec) -> int:
    reserved = ADDRESSES_OF_LIBRARIES + ADDRESSES_PER_CORE * (os.cpu_count() or 1)
    return spec.limits.memory_bytes + spec.limits.shared_bytes + reserved


def _filter(spec: SandboxSpec, how: Confinement) -> dict[str, object]:
    if not how.filtered:
        return {"filter": None}
    machine = seccomp.machine()
    program = seccomp.build(
        machine,
        allow_fork=spec.allow_fork,
        gpu=spec.gpu,
        namespaces=how.namespaces,
        signal_scope=how.signal_scope,
        truncation_free=how.truncation_free,
    )
    return {
        "filter": base64.b64encode(program.assemble()).decode(),
        "own_pid_at": program.own_pid_at,
        "seccomp_call": syscalls.number("seccomp", machine),
    }
