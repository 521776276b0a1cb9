"""Decides which workers may be forked from the same template process (a process that has imported torch): those that
would be in the same state if each imported torch itself."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.source.interpreter import stamp

#: Environment variable: a folder for the sockets of template processes that are shared, or `off`.
VARIABLE = "KERNEL_ASSISTANT_TEMPLATES"
PROGRAM = Path(__file__).resolve().parent.parent / "worker" / "boot_template.py"

#: The number of the system call pidfd_open. Pythons built on an old system, as many are, lack `os.pidfd_open`.
PIDFD_OPEN = 434

#: Variables that nothing reads while torch is imported. A template is used even if they differ.
UNREAD = ("PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES")
UNREAD_PREFIXES = ("KERNEL_ASSISTANT_", "PYTEST_", "XDG_")
#: Variables with lists of folders. Relative ones depend on the folder in which a process starts.
FOLDERS = ("PYTHONPATH", "LD_LIBRARY_PATH")
#: Fields of /proc/thread-self/status that a process inherits from its parent.
INHERITED = (
    *("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed"),
)


@dataclass(frozen=True)
class TemplateKey:
    """Identifies a template process (from which workers are forked) by `name`; it starts in `folder`."""

    name: str
    folder: str


def key_of(python: str, env: dict[str, str]) -> TemplateKey | None:
    """Returns the key of the template process from which a worker can be forked. Returns None if there can be no such
    process: templates are off, the system lacks something that they need, or the interpreter is a script, which may
    behave differently at each start."""
    if env.get(VARIABLE) == "off" or sys.platform != "linux" or not os.path.isabs(python):
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
    """Returns a file descriptor (pidfd) that becomes readable when the process ends. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(PIDFD_OPEN, pid, 0))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), f"process {pid} cannot be opened")
    return descriptor


def _is_program(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)


def _start_folder(env: dict[str, str]) -> str:
    """Returns the folder in which a template process (from which workers are forked) starts: the current folder if
    `PYTHONPATH` or `LD_LIBRARY_PATH` has relative folders, else a fixed one."""
    entries = [entry for name in FOLDERS if env.get(name) for entry in env[name].split(":")]
    return str(PROGRAM.parent) if all(entry.startswith("/") for entry in entries) else os.getcwd()


def _is_unread(name: str) -> bool:
    return name in UNREAD or name.startswith(UNREAD_PREFIXES)


def _newest(folder: Path) -> int:
    """Returns the newest modification time of the worker's files, which changes if they are edited or upgraded."""
    return max(path.stat().st_mtime_ns for path in folder.rglob("*.py"))


def _inherited() -> list[str]:
    """Returns what a process inherits from this process, apart from environment and working folder: umask, user,
    limits, namespaces and more. Raises OSError."""
    own = Path("/proc/thread-self")
    lines = (own / "status").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.partition(":")[0] in INHERITED]
    texts = [(own / name).read_text(encoding="utf-8") for name in ("limits", "cgroup", "oom_score_adj")]
    spaces = sorted(os.readlink(path) for path in (own / "ns").iterdir())
    return [*kept, *texts, *spaces, str(os.getpriority(os.PRIO_PROCESS, 0)), str(os.sched_getscheduler(0))]
