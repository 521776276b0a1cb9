"""The filter, read by an interpreter of BPF, also for machines on which the tests do not run."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_assistant.sandbox import bpf, seccomp, syscalls

OWN_PID = 4711
CLONE_OF_PTHREAD = 0x3D0F00
CLONE_OF_FORK = 0x1200011


def filter_for(machine: str, **changes: bool) -> list[tuple[int, int, int, int]]:
    options = {"allow_fork": False, "gpu": False, "namespaces": False, "signal_scope": False, "truncation_free": True}
    program = seccomp.build(machine, **{**options, **changes})
    code = [list(entry) for entry in struct.iter_unpack("=HBBI", program.assemble())]
    for index in program.own_pid_at:
        code[index][3] = OWN_PID
    return [(entry[0], entry[1], entry[2], entry[3]) for entry in code]


def answer(code: list[tuple[int, int, int, int]], machine: str, number: int, *arguments: int) -> int:
    """The kernel's answer: an errno, 0 for allowed, -1 for killed."""
    words = [argument & 0xFFFFFFFFFFFFFFFF for argument in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=iIQ6Q", number, syscalls.AUDIT_ARCH[machine], 0, *words)
    accumulator, position = 0, 0
    while True:
        operation, jump_true, jump_false, k = code[position]
        position += 1
        if operation == bpf.LOAD_WORD:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif operation == bpf.RETURN:
            return {bpf.ALLOW: 0, bpf.KILL_PROCESS: -1}.get(k, k & 0xFFFF)
        else:
            true = {
                bpf.JUMP_EQUAL: accumulator == k,
                bpf.JUMP_GREATER: accumulator > k,
                bpf.JUMP_GREATER_EQUAL: accumulator >= k,
                bpf.JUMP_ANY_BIT: bool(accumulator & k),
            }[operation]
            position += jump_true if true else jump_false


def ask(machine: str, name: str, *arguments: int, **changes: bool) -> int:
    number = syscalls.number(name, machine)
    assert number is not None
    return answer(filter_for(machine, **changes), machine, number, *arguments)


both = pytest.mark.parametrize("machine", syscalls.MACHINES)


@both
def test_threads_yes_processes_no(machine: str) -> None:
    assert ask(machine, "clone", CLONE_OF_PTHREAD) == 0
    assert ask(machine, "clone", CLONE_OF_FORK) == errno.EPERM
    assert ask(machine, "clone3") == errno.ENOSYS


@both
def test_compilers_may_fork_but_not_into_namespaces(machine: str) -> None:
    assert ask(machine, "clone", CLONE_OF_FORK, allow_fork=True) == 0
    assert ask(machine, "clone", 0x10000000 | 17, allow_fork=True) == errno.EPERM
    assert ask(machine, "clone3", allow_fork=True) == errno.ENOSYS


@both
def test_signals_reach_oneself_only(machine: str) -> None:
    for name in ("kill", "tgkill"):
        assert ask(machine, name, OWN_PID) == 0
        assert [ask(machine, name, pid) for pid in (0, 1, OWN_PID + 1, -1)] == [errno.EPERM] * 4
    assert ask(machine, "kill", 1, allow_fork=True, signal_scope=True) == 0
    assert ask(machine, "kill", 1, allow_fork=True, signal_scope=False) == errno.EPERM


@both
def test_limits_of_oneself_only(machine: str) -> None:
    assert [ask(machine, "prlimit64", pid) for pid in (0, OWN_PID, 1)] == [0, 0, errno.EPERM]


@both
def test_sockets(machine: str) -> None:
    assert ask(machine, "socket", 1) == errno.EPERM
    assert [ask(machine, "socket", family, 1, gpu=True) for family in (1, 2, 10, 16)] == [0] + [errno.EPERM] * 3
    flags = 0x80800
    assert [ask(machine, "socket", 1, kind | flags, gpu=True) for kind in (1, 2, 3, 5)] == [0, 1, 1, 0]
    assert [ask(machine, name, gpu=True) for name in ("bind", "connect", "socketpair")] == [0, errno.EPERM, errno.EPERM]


@both
def test_opening_to_cut_a_file(machine: str) -> None:
    cut = bpf.O_TRUNC
    answers = [ask(machine, "openat", 0, 0, mode | extra) for extra in (0, cut) for mode in (0, 1, 2, 3)]
    assert answers == [0, 0, 0, 0, errno.EPERM, 0, 0, errno.EPERM]
    assert ask(machine, "openat", 0, 0, cut, truncation_free=False) == 0


@both
@given(number=st.integers(0, 2000))
def test_what_is_not_named_is_allowed_and_what_is_not_known_does_not_exist(machine: str, number: int) -> None:
    column = syscalls.MACHINES.index(machine)
    named = {entry[column] for entry in syscalls.NUMBERS.values()}
    got = answer(filter_for(machine), machine, number)
    if number > syscalls.LAST_KNOWN:
        assert got == errno.ENOSYS
    elif number not in named:
        assert got == 0


@both
def test_every_denied_call_is_denied(machine: str) -> None:
    code = filter_for(machine)
    for name in (*seccomp.DENIED, *seccomp.SOCKETS, *seccomp.METADATA, *seccomp.PRIORITIES, *seccomp.SIGNALS):
        number = syscalls.number(name, machine)
        if number is not None:
            assert answer(code, machine, number) == errno.EPERM, name


def test_a_foreign_architecture_is_killed() -> None:
    assert answer(filter_for("x86_64"), "aarch64", 0) == -1
    assert answer(filter_for("x86_64"), "x86_64", syscalls.X32_BIT | 1) == -1
