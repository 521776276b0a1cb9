"""How a fork of the template becomes a worker that behaves like a process of its own.

What fork duplicates, and what is done about it here or elsewhere:

- Random number generators: Python's, torch's and numpy's are seeded anew; `secrets`, `uuid` and `tempfile` ask the
  system or detect the fork themselves. The hash secret and address layout are the template's, and so are sympy's own
  generator, which only picks points for its numeric checks, and the key of `multiprocessing`, which one user's
  processes may share.
- Environment and working folder: both are replaced. Changes that the interpreter's start made to the environment (by a
  `.pth` file) are made again. `multiprocessing` and torch's settings, which store the old folder, get the new one.
  `tempfile` determines its folder again.
- Threads: OpenBLAS ends its threads before a fork and starts them when numpy next needs them. libgomp starts its
  threads in the child, where `pinning` binds them to cores. Threads and processes that torch starts later (autograd,
  inductor) do not exist yet.
- Descriptors: those of the template (its sockets and its children) are closed. Of the four that come with the request,
  three become stdin, stdout and stderr; the fourth, the working folder, is closed after use. The objects
  `sys.stdin`, `sys.stdout` and `sys.stderr` stay, and use the new descriptors.
- Signals: the template has no handlers of its own. Priority, affinity, limits, umask and ignored signals are the
  template's, which inherited them from a starter that has the same ones (`environment/worker_template.py`).
- Exit handlers: the child has those of the imported modules, as a process of its own would.
- Compilers' state: nothing has been exported or compiled. inductor's cache folder depends on variables that are
  the same in template and worker.
"""

from __future__ import annotations

import ctypes
import os
import random
import socket
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import process as multiprocessing_process
from typing import Any

from .frames import FrameError, read_frame, write_frame

#: Modules of torch with settings, some of which are derived from the working folder.
CONFIGURATIONS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")


@dataclass(frozen=True)
class ForkOrder:
    """A client's request for a worker, and the connection to that client. `files` are four descriptors: the worker's
    stdin, stdout, stderr and working folder; `env` is its environment."""

    client: socket.socket
    files: list[int]
    env: dict[str, str]

    def close(self) -> None:
        for file in self.files:
            os.close(file)

    def carry_out(self, changed: dict[str, str | None]) -> None:
        """Turns this forked process into the worker, and sends its process id to the client. `changed` (from
        `changed_at_start`) is applied to the worker's environment last."""
        before = os.getcwd()
        os.setsid()
        for number, file in enumerate(self.files[:3]):
            os.dup2(file, number)
        os.fchdir(self.files[3])
        self.close()
        _set_environment(self.env, changed)
        _move(before, os.getcwd())
        _seed()
        _call_itself("boot.py")
        send(self.client, {"pid": os.getpid()})
        self.client.close()


def receive(client: socket.socket) -> ForkOrder | None:
    """Reads a client's request from its connection. Returns None, and closes the descriptors that came with it, if the
    client is gone or sends something else."""
    files: list[int] = []
    try:
        _, files, _, _ = socket.recv_fds(client, 1, 4, socket.MSG_CMSG_CLOEXEC)
        with client.makefile("rb") as stream:
            frame = read_frame(stream)
        if len(files) == 4 and frame is not None:
            return ForkOrder(client, files, frame[0]["env"])
    except (OSError, FrameError):
        pass  # the connection is closed, which a client that still waits will notice
    for file in files:
        os.close(file)
    return None


def send(client: socket.socket, message: dict[str, Any]) -> None:
    with client.makefile("wb") as stream:
        write_frame(stream, message)


def changed_at_start() -> dict[str, str | None]:
    """Returns the environment variables that this process has changed since it was started: name → present value, or
    None if the variable was removed."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair]
    given = {name: value for name, _, value in pairs}
    names = given.keys() | os.environ.keys()
    return {name: os.environ.get(name) for name in names if given.get(name) != os.environ.get(name)}


def _set_environment(env: dict[str, str], changed: dict[str, str | None]) -> None:
    os.environ.clear()
    os.environ.update(env)
    for name, value in changed.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    tempfile.tempdir = None


def _move(before: str, after: str) -> None:
    """Replaces the folder `before` by `after` in modules that store the working folder in which they were imported."""
    multiprocessing_process.ORIGINAL_DIR = after  # type: ignore[attr-defined]  # left out of the stubs
    for name in CONFIGURATIONS:
        entries: dict[str, Any] = getattr(sys.modules.get(name), "_config", {})
        for entry in entries.values():
            default = getattr(entry, "default", None)
            if isinstance(default, str) and default.startswith(before):
                entry.default = after + default[len(before) :]


def _seed() -> None:
    import torch

    random.seed()
    torch.default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _call_itself(name: str) -> None:
    """Overwrites the command line of the process with that of the worker's program `name` (a file in this folder), for
    tools that search for workers. Changes only `sys.argv` if the new command line is longer than the old one."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    sys.argv = [program]
    sys.modules["__main__"].__file__ = program
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, size = int(fields[45]), int(fields[46]) - int(fields[45])
    text = b"\0".join(map(os.fsencode, (sys.orig_argv[0], program))) + b"\0"
    if start and len(text) <= size:
        ctypes.memmove(start, text.ljust(size, b"\0"), size)
