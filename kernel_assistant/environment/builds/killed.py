"""Runs a compiler again if another program or the system killed it, because that is not the fault of the source."""

from __future__ import annotations

import re
import signal
import threading

from kernel_assistant.sandbox.contract import Sandbox, SandboxSpec
from kernel_assistant.sandbox.run import Completed, run

KILLED_TWICE = "the compiler was killed twice, which the system does when memory runs out: free some, then try again"
_STATUS = 128 + signal.SIGKILL
#: What g++ and nvcc print when one of their subprocesses was killed.
_OF_A_PART = re.compile(rb"Killed signal terminated program|died due to signal 9\b")


def compiled(
    sandbox: Sandbox, spec: SandboxSpec, *, timeout: float, cancel: threading.Event | None = None
) -> Completed:
    """Runs the compiler in the sandbox, and once more if another program or the system killed it or one of its
    subprocesses. Raises the exceptions of `run` (kernel_assistant/sandbox/run.py)."""
    done = run(sandbox, spec, timeout=timeout, cancel=cancel)
    return run(sandbox, spec, timeout=timeout, cancel=cancel) if was_killed(done) else done


def was_killed(done: Completed) -> bool:
    """Whether the compiler or one of its subprocesses was killed by another program or the system, not by `run`."""
    if done.timed_out or done.cancelled or done.exceeded or not done.returncode:
        return False
    return done.returncode == _STATUS or bool(_OF_A_PART.search(done.stdout + done.stderr))
