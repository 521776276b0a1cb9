"""The interface of sandbox backends. A spec says which files and devices a program can see; a backend makes from it the
command line and environment of the sandboxed process."""

from __future__ import annotations

from typing import Protocol

from kernel_assistant.records.codec import Record

GIB = 1 << 30

PROPERTIES = {
    "files_hidden": "only the system, the workspace and the listed paths can be read",
    "files_protected": "only the workspace can be written",
    "metadata_protected": "modes and times of files outside the workspace cannot be changed",
    "metadata_hidden": "files outside cannot be found to exist",
    "private_tmp": "/tmp is not the machine's",
    "tmp_size": "what can be written to /tmp is bounded",
    "network": "no internet sockets, not even to this machine",
    "unix_sockets": "no path or abstract sockets of other processes",
    "environment": "no environment variables but those of the spec",
    "descriptors": "exactly the descriptors that were passed arrive",
    "names": "any file name and argument works",
    "processes_hidden": "other processes cannot be found to exist",
    "signals": "no signals, priorities or limits for other processes",
    "ptrace": "no tracing and no reading of other processes",
    "syscalls": "system calls that widen the attack surface are denied",
    "privileges": "no capabilities, and none to be gained",
    "memory": "memory is bounded",
    "fork": "no new processes unless the spec allows them",
    "threads": "threads work",
    "process_limit": "the number of processes is bounded where they are allowed",
    "thread_limit": "the number of threads is bounded",
    "file_size": "the size of a file is bounded",
    "kill_tree": "killing the spawned process kills all that it started",
    "timeout": "`run` leaves nothing behind after a timeout",
    "compile_cpp": "the C++ compiler works",
    "compile_cuda": "the CUDA compiler works",
}
"""The properties that the self-check tests for every backend. `Sandbox.lacks` uses the same keys."""


class SandboxLimits(Record, frozen=True, kw_only=True):
    """Upper bounds in bytes, counts and seconds, for each process. `processes`, which counts threads too, and the sum
    of `memory_bytes` and `shared_bytes` also limit the whole process tree.

    `memory_bytes` is private memory; `shared_bytes` is shared memory that is passed in by descriptor. The address space
    is not limited with a GPU. `tmp_bytes` limits the private /tmp.
    """

    memory_bytes: int = 4 * GIB
    shared_bytes: int = 0
    processes: int = 512
    file_bytes: int = 1 * GIB
    tmp_bytes: int = 1 * GIB
    open_files: int = 1024
    cpu_seconds: int = 600

    def __post_init__(self) -> None:
        if any(getattr(self, field) < 0 for field in self.__struct_fields__):
            raise ValueError("limits cannot be negative")


class SandboxSpec(Record, frozen=True, kw_only=True):
    """The command to run, and the paths and variables that are visible to it.

    `workspace` is the only writable path, `read_only` lists the readable paths besides the system's. `env` adds to or
    overrides the child's standard environment variables PATH, LANG, HOME and TMPDIR. `cwd` defaults to the workspace.
    `allow_fork` is for compilers; without it the command may only start threads.
    """

    argv: tuple[str, ...]
    workspace: str | None = None
    read_only: tuple[str, ...] = ()
    gpu: bool = False
    env: dict[str, str] = {}
    cwd: str | None = None
    limits: SandboxLimits = SandboxLimits()
    allow_fork: bool = False

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("nothing to run")
        for path in (self.workspace, self.cwd, *self.read_only):
            if path is not None and not path.startswith("/"):
                raise ValueError(f"{path!r} is not an absolute path")


class SandboxCommand(Record, frozen=True, kw_only=True):
    """The process to start. `env` is its whole environment; the environment of the sandboxed command is part of
    `argv`."""

    argv: tuple[str, ...]
    env: dict[str, str]


class Sandbox(Protocol):
    """A backend, which makes sandboxed commands. `lacks` names the properties (keys of `PROPERTIES`) that the backend
    does not have; `explanation` is for the user."""

    name: str
    lacks: frozenset[str]
    explanation: str

    def command(self, spec: SandboxSpec) -> SandboxCommand:
        """Returns the command for a spec. Raises MissingError if a path does not exist, SandboxError if the backend
        cannot express the spec."""
