"""Tries the attacks that hostile code would try. Runs inside a sandbox as a script, standard library only, and reports
the results.

    PYTHON -I -S probes.py NAME ARGUMENTS

ARGUMENTS is a JSON list; the answer is one JSON value on stdout. Probes report facts and do not judge them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

MIB = 1 << 20
CLONE_NEWUSER = 0x10000000
PTRACE_ATTACH = 16

# Call → its number on x86-64 and on aarch64, and arguments that are harmless if the call is allowed.
FORBIDDEN: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "unshare": (272, 97, (CLONE_NEWUSER,)),
    "setns": (308, 268, (-1, 0)),
    "mount": (165, 40, (0, 0, 0, 0, 0)),
    "bpf": (321, 280, (0, 0, 0)),
    "perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
    "userfaultfd": (323, 282, (1,)),
    "keyctl": (250, 219, (0, -3, 0)),
    "io_uring_setup": (425, 425, (1, 0)),
    "personality": (135, 92, (0x0040000,)),
    "shmget": (29, 194, (0x7F3C, 4096, 0)),
    "pidfd_open": (434, 434, (1, 0)),
    "kexec_load": (246, 104, (0, 0, 0, 0xFFFF)),
    "not_yet_invented": (1000, 1000, ()),
}

libc = ctypes.CDLL(None, use_errno=True)


def error_of(action: Callable[[], Any]) -> str:
    """Returns the name of the error that the action raises, "" if it succeeds."""
    try:
        action()
    except (OSError, MemoryError) as error:
        return type(error).__name__
    return ""


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(1 << 16).decode("utf-8", "replace")


def read_each(paths: list[str]) -> list[str]:
    """Returns the content of each readable file, or the names in each readable folder."""
    texts = []
    for path in paths:
        try:
            texts.append("\n".join(os.listdir(path)) if os.path.isdir(path) else read(path))
        except OSError:
            continue
    return texts


def exists_each(paths: list[str]) -> list[bool]:
    return [os.path.lexists(path) for path in paths]


def write_each(paths: list[str]) -> list[str]:
    """Creates or appends to each file. Returns the error for each, "" if it succeeded."""

    def append(path: str) -> None:
        with open(path, "ab") as file:
            file.write(b"written from inside")

    return [error_of(partial(append, path)) for path in paths]


def open_for_writing(paths: list[str]) -> list[str]:
    """Like `write_each`, but only opens the files; for files that must not be changed."""

    def touch(path: str) -> None:
        os.close(os.open(path, os.O_WRONLY))

    return [error_of(partial(touch, path)) for path in paths]


def spoil(path: str) -> list[str]:
    """Tries other ways to change a file: its name, its folder entry, a link to it, its length. Returns the errors."""

    def open_and_cut(access: int) -> None:
        os.close(os.open(path, access | os.O_TRUNC))

    return [
        error_of(partial(open_and_cut, os.O_RDONLY)),
        error_of(partial(open_and_cut, 3)),
        error_of(lambda: os.rename(path, f"{path}.renamed")),
        error_of(lambda: os.truncate(path, 0)),
        error_of(lambda: os.link(path, f"{path}.link")),
        error_of(lambda: os.unlink(path)),
    ]


def change_metadata(path: str) -> list[str]:
    def by_descriptor() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        os.fchmod(descriptor, 0o777)

    return [
        error_of(lambda: os.chmod(path, 0o777)),
        error_of(lambda: os.utime(path, (1, 1))),
        error_of(by_descriptor),
        error_of(lambda: os.setxattr(path, "user.inside", b"1")),
    ]


def connect_each(addresses: list[list[Any]]) -> list[str]:
    """Connects to listeners outside, given as (family, kind, address). Returns the errors."""

    def connect(family: int, kind: int, address: Any) -> None:
        with socket.socket(family, kind) as client:
            client.settimeout(2)
            client.connect(tuple(address) if isinstance(address, list) else address)
            client.sendall(b"hello from inside")

    return [error_of(partial(connect, *entry)) for entry in addresses]


def send_through_pair(path: str) -> str:
    """Sends to an address from a socket of a datagram pair, which needs no call of `socket`. Returns the error."""

    def send() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            ours.sendto(b"hello from inside", path)

    return error_of(send)


def environment() -> list[str]:
    """Returns all readable environment variables of any process, as NAME=VALUE."""
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    for entry in ["self", "1", str(os.getppid())]:
        variables += read_each([f"/proc/{entry}/environ"])[:1]
    return "\0".join(variables).split("\0")


def descriptors() -> list[int]:
    """Returns the open descriptors. Tries each number, since /proc may not exist."""

    def is_open(number: int) -> bool:
        return not error_of(lambda: os.fstat(number))

    return [number for number in range(256) if is_open(number)]


def use_descriptors(connected: int, memory: int) -> str:
    """Reads a shared memory and sends its content through a socket, both inherited."""
    with mmap.mmap(memory, 0) as view, socket.socket(fileno=connected) as peer:
        peer.sendall(view[:5][::-1])
        view[:5] = b"taken"
    return "sent"


def names(path: str, *arguments: str) -> list[str]:
    """Writes a file with an unusual name. Returns the arguments as they arrived."""
    with open(path, "wb") as file:
        file.write(b"here")
    return list(arguments)


def find_process(pid: int) -> list[bool]:
    """Returns whether a process is visible in the list of /proc, by its path there, and to system calls."""
    return [
        bool(read_each(["/proc"])) and str(pid) in read_each(["/proc"])[0].split("\n"),
        os.path.exists(f"/proc/{pid}"),
        not error_of(lambda: os.getpgid(pid)),
    ]


def disturb_process(pid: int) -> list[str]:
    return [
        error_of(lambda: os.kill(pid, signal.SIGTERM)),
        error_of(lambda: os.setpriority(os.PRIO_PROCESS, pid, 15)),
        error_of(lambda: _prlimit(pid)),
        error_of(lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))),
    ]


def _prlimit(pid: int) -> None:
    import resource

    resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, 4))


def trace_process(pid: int) -> list[str]:
    def attach() -> None:
        if libc.ptrace(PTRACE_ATTACH, pid, None, None) < 0:
            raise OSError(ctypes.get_errno(), "ptrace")
        libc.ptrace(17, pid, None, None)

    def peek() -> None:
        buffer = ctypes.create_string_buffer(8)
        vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
        if libc.process_vm_readv(pid, vector, 1, vector, 1, 0) < 0 and ctypes.get_errno() != 14:
            raise OSError(ctypes.get_errno(), "process_vm_readv")

    return [error_of(attach), error_of(peek), error_of(lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)))]


def forbidden_calls() -> dict[str, str]:
    """Returns the error of each call that should be refused, "" if it succeeded or failed for another reason."""
    column = 0 if platform.machine() == "x86_64" else 1
    errors = {}
    for name, entry in FORBIDDEN.items():
        arguments = [ctypes.c_long(argument) for argument in entry[2]]
        result = libc.syscall(entry[column], *arguments)
        refused = result < 0 and ctypes.get_errno() in (1, 38)
        errors[name] = os.strerror(ctypes.get_errno()) if refused else ""
    return errors


def privileges() -> dict[str, str]:
    """Returns the lines of /proc/self/status about privileges."""
    wanted = ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    fields = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
    return {name: fields[name] for name in wanted}


def take_memory(bytes_wanted: int, shared: bool) -> int:
    """Allocates memory, private or shared, which RLIMIT_DATA does not count. Returns how many bytes it got."""
    step, flags = 16 * MIB, mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    held: list[mmap.mmap] = []
    with contextlib.suppress(OSError, MemoryError):
        while len(held) * step < bytes_wanted:
            held.append(mmap.mmap(-1, step, flags=flags))
    return len(held) * step


def make_memfd() -> str:
    return error_of(lambda: os.close(os.memfd_create("inside")))


def fork_each() -> dict[str, str]:
    """Tries every function of the C library that makes a process. Returns the error of each."""

    def fork() -> None:
        if os.fork() == 0:
            os._exit(0)

    def system() -> None:
        if libc.system(b"true") != 0:
            raise OSError("system")

    return {
        "fork": error_of(fork),
        "spawn": error_of(lambda: os.posix_spawn("/bin/true", ["true"], {})),
        "system": error_of(system),
    }


def start_threads(count: int) -> int:
    """Returns how many of `count` threads ran at the same time."""
    done = threading.Event()
    started = 0
    for _ in range(count):
        try:
            threading.Thread(target=done.wait, daemon=True).start()
        except (RuntimeError, MemoryError):
            break
        started += 1
    done.set()
    return started


def fork_bomb(bound: int) -> int:
    """Starts up to `bound` processes, which sleep for half a minute. Returns how many were started."""
    for started in range(bound):
        try:
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
        except OSError:
            return started
    return bound


def grow_file(path: str, bytes_wanted: int) -> int:
    """Writes to one file. Returns how many bytes it took. The limit's signal is ignored to get an error instead."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written = 0
    with open(path, "wb", buffering=0) as file:
        while written < bytes_wanted:
            try:
                written += file.write(bytes(MIB))
            except OSError:
                break
    return written


def fill_folder(path: str, bytes_wanted: int) -> int:
    """Writes files of 1 MiB to a folder. Returns how many bytes they took."""
    total = 0
    with contextlib.suppress(OSError):
        os.makedirs(path, exist_ok=True)
        while total < bytes_wanted:
            grown = grow_file(f"{path}/{total}", MIB)
            total += grown
            if grown < MIB:
                break
    return total


def leave_children(token: str) -> None:
    """Starts a child, and a grandchild in its own session whose parent ends. Both have the token as an argument, and
    sleep."""
    argv = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", token]
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(argv[0], argv)
        os._exit(0)
    if os.fork() == 0:
        os.execv(argv[0], argv)
    time.sleep(600)


def main(argv: list[str]) -> None:
    answer = globals()[argv[1]](*json.loads(argv[2]))
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv)
