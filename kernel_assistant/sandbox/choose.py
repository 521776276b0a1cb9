"""Chooses the sandbox backend for this machine."""

from __future__ import annotations

from functools import cache

from kernel_assistant.errors import KernelAssistantError, MissingError, SandboxError, UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.bubblewrap import Bubblewrap
from kernel_assistant.sandbox.contract import Sandbox, SandboxSpec
from kernel_assistant.sandbox.landlock import Landlock
from kernel_assistant.sandbox.launcher import PYTHON
from kernel_assistant.sandbox.run import run
from kernel_assistant.sandbox.unconfined import Unconfined

BACKENDS: dict[str, type[Bubblewrap | Landlock]] = {"bubblewrap": Bubblewrap, "landlock": Landlock}
MODES = ("auto", *BACKENDS, "none")
TRIAL = ("-I", "-S", "-c", "print('inside')")
TRIAL_SECONDS = 20.0

_NAMESPACES = (
    "allow unprivileged user namespaces (Ubuntu 24.04: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0; "
    "containers: --security-opt seccomp=unconfined)"
)


class BackendStatus(Record, frozen=True, kw_only=True):
    """Whether one sandbox backend can be used on this machine, for `doctor`. `reason` and `next_step` are "" if it can.
    `lacks` are the protections that a usable backend does not have; it is empty if the backend is not usable."""

    backend: str
    usable: bool
    reason: str = ""
    next_step: str = ""
    lacks: tuple[str, ...] = ()


def choose(mode: str = "auto") -> Sandbox:
    """Returns the sandbox for a mode of `MODES`. `auto` never chooses `none`.

    Raises UsageError for another mode, MissingError if the backend (for `auto`, every backend) does not work here.
    """
    if mode == "none":
        return Unconfined()
    if mode not in MODES:
        raise UsageError(f"unknown sandbox {mode!r}", f"use one of: {', '.join(MODES)}")
    statuses = [_status(name) for name in (BACKENDS if mode == "auto" else (mode,))]
    for status in statuses:
        if status.usable:
            return BACKENDS[status.backend]()
    raise MissingError(
        "no sandbox works here: " + "; ".join(f"{status.backend}: {status.reason}" for status in statuses),
        f"{statuses[0].next_step}; or accept the risk with --sandbox none",
    )


def probe() -> list[BackendStatus]:
    """Returns the status of every backend that isolates, the preferred one first. Each is tested by running a process
    in it."""
    return [_status(name) for name in BACKENDS]


@cache
def _status(name: str) -> BackendStatus:
    try:
        sandbox = BACKENDS[name]()
        _try(sandbox)
    except KernelAssistantError as error:
        return BackendStatus(backend=name, usable=False, reason=error.cause, next_step=error.next_step)
    return BackendStatus(backend=name, usable=True, lacks=tuple(sorted(sandbox.lacks)))


def _try(sandbox: Sandbox) -> None:
    done = run(sandbox, SandboxSpec(argv=(PYTHON, *TRIAL)), timeout=TRIAL_SECONDS)
    if done.stdout.strip() != b"inside":
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise SandboxError(lines[-1] if lines else f"exit code {done.returncode}", _NAMESPACES)
