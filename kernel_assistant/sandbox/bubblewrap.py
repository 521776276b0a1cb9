"""The bubblewrap backend: the command runs in its own namespaces, with a file system that contains only the paths of
the spec."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

from kernel_assistant.errors import MissingError
from kernel_assistant.sandbox import launcher, system
from kernel_assistant.sandbox.contract import SandboxCommand, SandboxSpec
from kernel_assistant.sandbox.mounts import MountLayout
from kernel_assistant.sandbox.paths import own_interpreter_paths

INSIDE_LAUNCH = "/run/launch.py"
# Since Linux 5.14 RLIMIT_NPROC counts the tasks of the user namespace; before that, the user's on the whole machine.
TASKS_COUNTED_APART = (5, 14)


class Bubblewrap:
    """The bubblewrap backend. The constructor raises MissingError if there is no `bwrap`."""

    name = "bubblewrap"
    explanation = "bubblewrap: no network, own process and file system view, only the workspace writable"

    def __init__(self) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise MissingError("bubblewrap is not installed", "install it: sudo apt install bubblewrap")
        self.program = program
        self.tasks_limited = kernel_version() >= TASKS_COUNTED_APART
        self.tmp_limited = "--size BYTES" in _help(program)
        unlimited = {"thread_limit": not self.tasks_limited or os.geteuid() == 0, "tmp_size": not self.tmp_limited}
        self.lacks = frozenset(name for name, true in unlimited.items() if true)

    def command(self, spec: SandboxSpec) -> SandboxCommand:
        confinement = launcher.Confinement(namespaces=True, signal_scope=True, tasks_limited=self.tasks_limited)
        inner = launcher.launcher_argv(spec, confinement, scratch="/tmp", launch=INSIDE_LAUNCH)
        argv = (
            self.program,
            *_isolation(),
            *_base(),
            *self._tmp(spec),
            *_view(spec),
            *_gpu(spec),
            *_seal(spec),
            "--",
            *inner,
        )
        return SandboxCommand(argv=argv, env=launcher.minimal_env())

    def _tmp(self, spec: SandboxSpec) -> tuple[str, ...]:
        """Returns the arguments for the private /tmp. They must come before those of the binds, which may lie below
        /tmp."""
        size = ("--size", str(max(spec.limits.tmp_bytes, 4096))) if self.tmp_limited else ()
        return (*size, "--tmpfs", "/tmp")


def _help(program: str) -> str:
    return subprocess.run((program, "--help"), capture_output=True, text=True, errors="replace", check=False).stdout


def kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(character for character in minor if character.isdigit()) or 0)


def _isolation() -> Iterator[str]:
    yield from ("--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session")
    yield from ("--hostname", "sandbox")


def _base() -> Iterator[str]:
    """Yields the arguments for the system's folders (with or without a merged /usr). /home, /root, /var, /srv, /opt,
    /mnt and others are left out."""
    for path in system.SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for path in system.SETTINGS:
        if os.path.exists(path):
            yield from ("--ro-bind", os.path.realpath(path), path)
    yield from ("--proc", "/proc", "--dev", "/dev", "--ro-bind", launcher.LAUNCH, INSIDE_LAUNCH)


def _view(spec: SandboxSpec) -> Iterator[str]:
    layout = MountLayout(roots=system.SYSTEM)
    for path in (*own_interpreter_paths(), *spec.read_only, *(system.driver_paths(os.environ) if spec.gpu else ())):
        layout.add(path)
    if spec.workspace is not None:
        layout.add(spec.workspace, writable=True)
    for path, writable in layout.binds:
        yield from ("--bind" if writable else "--ro-bind", path, path)
    for target, link in layout.needed_links():
        yield from ("--symlink", target, link)


def _gpu(spec: SandboxSpec) -> Iterator[str]:
    if spec.gpu:
        for path in system.gpu_devices():
            yield from ("--dev-bind", path, path)
        yield from ("--ro-bind", "/sys", "/sys")


def _seal(spec: SandboxSpec) -> Iterator[str]:
    """Yields the arguments that make the sandbox's own file systems read-only: the root, /dev (with /dev/shm), /proc.

    With a read-only /proc, cuInit fails (CUDA_ERROR_OPERATING_SYSTEM, driver 580 on an H200), so with a GPU /proc stays
    writable: it shows only the sandbox's own processes, and only root outside the sandbox may change the machine's
    settings in it. The process of bubblewrap itself has no system call filter, so its folder /proc/1, which gives
    access to its memory, is hidden.
    """
    if spec.gpu:
        yield from ("--tmpfs", "/proc/1")
    for path in ("/dev", "/proc/1" if spec.gpu else "/proc", "/"):
        yield from ("--remount-ro", path)
