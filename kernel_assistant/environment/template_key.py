"""Which workers may be forked from the same template: those that would be equal if each imported torch itself."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.source.interpreter import stamp

#: A folder for the sockets of templates that processes share, or `off`.
VARIABLE = "KERNEL_ASSISTANT_TEMPLATES"
PROGRAM = Path(__file__).resolve().parent.parent / "worker" / "boot_template.py"

#: The number of pidfd_open. Pythons that were built on an old system, as many are, lack `os.pidfd_open`.
PIDFD_OPEN = 434

#: With NVIDIA's driver there are no templates: on one H200 (torch 2.11 for CUDA, triton 3.6) the first was unfit, and
#: found that out after 15 s.
DRIVER = "/dev/nvidiactl"

#: Variables that nothing reads while torch is imported. Where they differ, a template serves all the same.
UNREAD = ("PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES")
UNREAD_PREFIXES = ("KERNEL_ASSISTANT_", "PYTEST_", "XDG_")
#: Lists of folders; a relative one is looked up where a process starts.
FOLDERS = ("PYTHONPATH", "LD_LIBRARY_PATH")
#: What a process has from the one that started it, of /proc/thread-self/status.
INHERITED = (
    *("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed"),
)


@dataclass(frozen=True)
class TemplateKey:
    """`name` tells templates apart, each of which starts in `folder`."""

    name: str
    folder: str


def key_of(python: str, env: dict[str, str]) -> TemplateKey | None:
    """Of the template for a worker. None where there is none: where they are off, the system lacks what they need or
    has a GPU, and for an interpreter that is a script, which may do something else at each start."""
    if env.get(VARIABLE) == "off" or sys.platform != "linux" or not os.path.isabs(python) or os.path.exists(DRIVER):
        return None
    try:
        if not _is_program(python):
            return None
        os.close(open_process(os.getpid()))
        folder = _start_folder(env)
        read = sorted(pair for pair in env.items() if not _is_unread(pair[0]))
        parts = [python, stamp(Path(python)), _newest(PROGRAM.parent), read, folder, _inherited()]
    except OSError:
        return None
    return TemplateKey(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32], folder)


def open_process(pid: int) -> int:
    """A descriptor that can be read from once the process has ended. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(PIDFD_OPEN, pid, 0))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), f"process {pid} cannot be opened")
    return descriptor


def _is_program(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)


def _start_folder(env: dict[str, str]) -> str:
    """Where a template starts: anywhere, unless the environment has folders that are relative to it."""
    entries = [entry for name in FOLDERS if env.get(name) for entry in env[name].split(":")]
    return str(PROGRAM.parent) if all(entry.startswith("/") for entry in entries) else os.getcwd()


def _is_unread(name: str) -> bool:
    return name in UNREAD or name.startswith(UNREAD_PREFIXES)


def _newest(folder: Path) -> int:
    """The worker's own files have been edited or upgraded when this is another."""
    return max(path.stat().st_mtime_ns for path in folder.rglob("*.py"))


def _inherited() -> list[str]:
    """What a process gets from the one that starts it, environment and working folder apart. Raises OSError."""
    own = Path("/proc/thread-self")
    lines = (own / "status").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.partition(":")[0] in INHERITED]
    texts = [(own / name).read_text(encoding="utf-8") for name in ("limits", "cgroup", "oom_score_adj")]
    spaces = sorted(os.readlink(path) for path in (own / "ns").iterdir())
    return [*kept, *texts, *spaces, str(os.getpriority(os.PRIO_PROCESS, 0)), str(os.sched_getscheduler(0))]
