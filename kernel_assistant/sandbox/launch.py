"""Runs in the sandbox: restricts its own process, then executes the command. Standard library only, Python 3.10 or
newer.

    PYTHON -I -S launch.py POLICY -- COMMAND [ARGUMENT…]

POLICY is the JSON object made by `launcher.py`. Exits with 125 if the policy cannot be applied in full.
"""

from __future__ import annotations

import binascii
import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys

TYPE_CHECKING = False  # not imported from typing, because every candidate waits for this file's imports
if TYPE_CHECKING:
    from typing import Any, NoReturn

EXIT_SETUP = 125
EXIT_NOT_FOUND = 127

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4
CAPABILITY_VERSION_3 = 0x20080522

LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
FILE_RIGHTS = 0b1100000000000111  # execute, write, read, truncate, ioctl: the rights that a rule for a file may have
READ_RIGHTS = 0b1101  # execute, read file, read folder
MODIFY_RIGHTS = 0b1100000000000110
SPECIAL_FILES = 0b100001000000  # creating character and block devices
FILE_RIGHTS_OF_ABI = (0, 13, 14, 15, 15, 16)
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
TCP_BIND_AND_CONNECT = 0b11

libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> NoReturn:
    parent = os.getppid()
    policy = json.loads(argv[1])
    try:
        if policy["die_with_parent"]:
            die_with(parent)
        if policy["supervise"]:
            supervise()
        confine(policy)
    except OSError as error:
        sys.stderr.write(f"sandbox: {error}\n")
        sys.stderr.flush()
        os._exit(EXIT_SETUP)
    become(argv[3:], policy["env"])


def confine(policy: dict[str, Any]) -> None:
    """Applies every restriction; the command cannot undo them. The system call filter is loaded last, since it denies
    calls that applying the other restrictions needs."""
    new_session()
    set_limits(policy["limits"], policy["tasks"])
    if policy["landlock"] is not None:
        restrict_files(policy["landlock"], policy["landlock_abi"])
    os.chdir(policy["cwd"])
    if policy["drop_capabilities"]:
        drop_capabilities()
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if policy["filter"] is not None:
        load_filter(binascii.a2b_base64(policy["filter"]), policy["own_pid_at"], policy["seccomp_call"])


def become(command: list[str], env: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        sys.stderr.write(f"sandbox: {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(EXIT_NOT_FOUND)


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def die_with(parent: int) -> None:
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent death signal")
    if os.getppid() != parent:
        os._exit(EXIT_SETUP)


def new_session() -> None:
    if os.getpid() != os.getsid(0):
        with contextlib.suppress(PermissionError):  # already the leader of a process group
            os.setsid()


def supervise() -> None:
    """Forks and returns in the child. The parent adopts orphaned descendants, waits for the child, then kills the
    orphans and exits with the child's exit code."""
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        die_with(parent)
        return
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    kill_children()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def kill_children() -> None:
    """Kills all children until there are none. When a child dies, this process adopts the child's own children."""
    path = f"/proc/self/task/{os.getpid()}/children"
    while True:
        with open(path, encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
        for child in children:
            os.kill(child, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def set_limits(limits: dict[str, int], tasks: dict[str, Any]) -> None:
    for name, value in limits.items():
        set_limit(getattr(resource, f"RLIMIT_{name}"), value)
    if tasks["limit"] is not None:
        set_limit(resource.RLIMIT_NPROC, tasks["limit"] + (count_own_tasks() if tasks["add_existing"] else 0))


def set_limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def count_own_tasks() -> int:
    """Returns the number of this user's threads. It is needed in a sandbox without its own user namespace, where the
    process limit counts all of them."""
    total = 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                total += len(os.listdir(f"/proc/{entry.name}/task"))
        except OSError:
            continue  # the process ended meanwhile
    return total


def landlock_abi() -> int:
    """Returns the version of the kernel's Landlock, 0 if it has none."""
    return max(0, int(libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def restrict_files(rules: list[list[str]], abi: int) -> None:
    """Applies Landlock rules, pairs of a path and "read", "write" or "modify". `abi` is the kernel's version of
    Landlock. Rules for paths that do not exist are ignored."""
    handled = (1 << FILE_RIGHTS_OF_ABI[min(abi, 5)]) - 1
    attributes = struct.pack("=QQQ", handled, TCP_BIND_AND_CONNECT, SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = check(libc.syscall(LANDLOCK_CREATE_RULESET, attributes[:size], ctypes.c_size_t(size), 0), "landlock")
    for path, kind in rules:
        add_rule(ruleset, path, kind, handled)
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    check(libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def add_rule(ruleset: int, path: str, kind: str, handled: int) -> None:
    rights = {"read": READ_RIGHTS, "write": handled & ~SPECIAL_FILES, "modify": MODIFY_RIGHTS | READ_RIGHTS}[kind]
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):
        rights &= FILE_RIGHTS
    rule = struct.pack("=Qi", rights & handled, beneath)
    check(libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), f"landlock rule for {path}")
    os.close(beneath)


def drop_capabilities() -> None:
    """Drops all capabilities, if permitted also from the bounding set, so that programs started by root cannot regain
    them."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, bytes(24)), "capset")


def load_filter(program: bytes, own_pid_at: list[int], seccomp_call: int) -> None:
    """Loads the system call filter. SPEC_ALLOW is set, because older kernels otherwise disable speculative stores for
    filtered processes, which slows measurements down."""
    code = bytearray(program)
    for index in own_pid_at:
        struct.pack_into("=I", code, 8 * index + 4, os.getpid())
    array = (ctypes.c_char * len(code)).from_buffer(code)
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(array))
    check(libc.syscall(seccomp_call, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, header), "seccomp")


if __name__ == "__main__":
    main(sys.argv)
