"""Checks which actions are possible on other processes, on the kernel, and over sockets."""

from __future__ import annotations

import os
import resource
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from tests.sandbox.checks.bench import ProbeFolders, ProbeResult

DANGEROUS_FILES = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"]
ALLOWED_NAMES = {"PATH", "LANG", "HOME", "TMPDIR", "GIVEN", "LC_CTYPE", "PWD"}


def others(bench: ProbeFolders) -> Iterator[ProbeResult]:
    pid = bench.victim.pid
    visible = bench.probe("find_process", pid)
    yield ProbeResult("processes_hidden", not any(visible), f"listed, seen, asked: {visible}")
    before = _state(pid)
    errors = bench.probe("disturb_process", pid)
    unharmed = bench.victim.poll() is None and _state(pid) == before
    yield ProbeResult("signals", unharmed and all(errors), f"signal, priority, limits, policy: {errors}")
    if not errors[0]:  # the signal was accepted, so the victim dies, perhaps not yet
        bench.new_victim()
    refused = bench.probe("trace_process", bench.victim.pid)
    yield ProbeResult("ptrace", all(refused), f"attach, read, mem: {refused}")


def kernel(bench: ProbeFolders) -> Iterator[ProbeResult]:
    errors = bench.probe("forbidden_calls")
    open_calls = [name for name, error in errors.items() if not error]
    yield ProbeResult("syscalls", not open_calls, f"not refused: {open_calls}")
    lines = bench.probe("privileges")
    none = int(lines["CapPrm"], 16) == 0 == int(lines["CapEff"], 16)
    sealed = lines["NoNewPrivs"] == "1" and lines["Seccomp"] == "2"
    errors = bench.probe("open_for_writing", DANGEROUS_FILES)
    yield ProbeResult("privileges", none and sealed and all(errors), f"{lines}, {errors}")


def environment(bench: ProbeFolders) -> Iterator[ProbeResult]:
    os.environ[bench.token] = bench.token
    try:
        seen = bench.probe("environment", env={"GIVEN": "this"})
    finally:
        del os.environ[bench.token]
    names = {entry.split("=")[0] for entry in seen if entry}
    held = "GIVEN=this" in seen and names <= ALLOWED_NAMES
    yield ProbeResult("environment", held, f"{sorted(names - ALLOWED_NAMES)}")


def descriptors(bench: ProbeFolders) -> Iterator[ProbeResult]:
    ours, theirs = socket.socketpair()
    memory = os.memfd_create("passed")
    os.write(memory, b"olleh")
    passed = (theirs.fileno(), memory)
    with ours, theirs:
        arrived = bench.probe("descriptors", pass_fds=passed)
        bench.probe("use_descriptors", *passed, pass_fds=passed)
        ours.settimeout(5)
        spoken = ours.recv(5) == b"hello" and os.pread(memory, 5, 0) == b"taken"
    os.close(memory)
    yield ProbeResult("descriptors", spoken and sorted(arrived) == sorted({0, 1, 2, *passed}), f"{arrived}")


def network(bench: ProbeFolders) -> Iterator[ProbeResult]:
    path = os.path.join(bench.inside, "s")
    with ExitStack() as stack:
        internet = [
            *_listen(stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            *_listen(stack, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            *_listen(stack, socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
        ]
        yield _tried(bench, "network", internet)
        unix = [
            *_listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, path),
            *_listen(stack, socket.AF_UNIX, socket.SOCK_DGRAM, f"{path}-datagram"),
            *_listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, f"\0{bench.token}"),
        ]
        bench.probe("send_through_pair", f"{path}-datagram")
        yield _tried(bench, "unix_sockets", unix)


def _tried(bench: ProbeFolders, name: str, listeners: list[socket.socket]) -> ProbeResult:
    """Runs a probe that connects, and asks the listeners whether anything arrived, which proves more than an error."""
    addresses = [(listener.family, listener.type, _address(listener)) for listener in listeners]
    errors = bench.probe("connect_each", addresses)
    reached, _, _ = select.select(listeners, [], [], 0.2)
    return ProbeResult(name, not reached and bool(listeners), f"{errors}, {len(reached)} reached")


def _listen(stack: ExitStack, family: int, kind: int, address: object) -> Iterator[socket.socket]:
    """Yields a listening socket, nothing if the machine lacks the address family (IPv6)."""
    with suppress(OSError):
        listener = stack.enter_context(socket.socket(family, kind))
        listener.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            listener.listen(4)
        yield listener


def _address(listener: socket.socket) -> object:
    name = listener.getsockname()
    return name.decode() if isinstance(name, bytes) else name


def _state(pid: int) -> tuple[int, tuple[int, int], int]:
    return (
        os.getpriority(os.PRIO_PROCESS, pid),
        resource.prlimit(pid, resource.RLIMIT_NOFILE),
        os.sched_getscheduler(pid),
    )
