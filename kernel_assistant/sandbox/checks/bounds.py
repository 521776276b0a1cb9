"""Limits, and that nothing survives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from kernel_assistant.sandbox.checks.bench import Bench, Finding, wait_until
from kernel_assistant.sandbox.contract import Limits
from kernel_assistant.sandbox.launcher import address_bytes
from kernel_assistant.sandbox.paths import compiler_paths, toolkit_paths
from kernel_assistant.sandbox.run import run

MIB = 1 << 20
GIB = 1 << 30
COMPILE_SECONDS = 60.0


def memory(bench: Bench) -> Iterator[Finding]:
    limits = Limits(memory_bytes=256 * MIB)
    private = bench.probe("take_private", 1 * GIB, limits=limits)
    bound = address_bytes(bench.spec(("true",), limits=limits))
    shared = bench.probe("take_shared", bound + 4 * GIB, limits=limits)
    memfd = bench.probe("make_memfd", limits=limits)
    held = private <= 256 * MIB and shared <= bound and bool(memfd)
    yield Finding("memory", held, f"private {private >> 20} MiB, shared {shared >> 20} MiB, memfd {memfd or 'made'}")


def processes(bench: Bench) -> Iterator[Finding]:
    errors = bench.probe("fork_each")
    yield Finding("fork", all(errors.values()), f"{errors}")
    threads = bench.probe("start_threads", 32)
    yield Finding("threads", threads == 32, f"{threads} of 32")
    # So much memory that it is not the stacks that bound the threads.
    limits = Limits(processes=48, memory_bytes=64 * GIB)
    threads = bench.probe("start_threads", 400, limits=limits)
    yield Finding("thread_limit", threads < 400, f"{threads} of 400")
    done = run(bench.sandbox, bench.probe_spec("fork_bomb", 2000, limits=limits, allow_fork=True), timeout=20)
    started = int(done.stdout or b"-1")
    yield Finding("process_limit", done.exceeded == "processes" or 0 <= started < 2000, f"{done.exceeded} {started}")


def survivors(bench: Bench) -> Iterator[Finding]:
    token = f"top-{bench.token}"
    command = bench.sandbox.command(bench.probe_spec("leave_children", token, allow_fork=True))
    top = subprocess.Popen(command.argv, env=command.env, start_new_session=True)
    started = wait_until(lambda: len(bench.with_token(token)) == 2)
    top.kill()
    top.wait()
    gone = wait_until(lambda: not bench.with_token(token), 2.0)
    yield Finding("kill_tree", gone if started else None, f"{len(bench.with_token(token))} left")
    _clear(bench, token)


def time_limit(bench: Bench) -> Iterator[Finding]:
    """The limit is long enough for the children to have started; that they had is checked while they run."""
    token = f"time-{bench.token}"
    done = run(bench.sandbox, bench.probe_spec("leave_children", token, allow_fork=True), timeout=1.5)
    left = bench.with_token(token)
    yield Finding("timeout", done.timed_out and not left, f"{len(left)} left after {done.seconds:.2f} s")
    _clear(bench, token)


def compilers(bench: Bench) -> Iterator[Finding]:
    cpp, nvcc = shutil.which("g++"), shutil.which("nvcc")
    if cpp is not None:
        source = _source(bench, "add.cpp", 'extern "C" int add(int a, int b) { return a + b; }\n')
        argv = [cpp, "-shared", "-fPIC", "-fopenmp", "-O1", "-o", f"{source}.so", source]
        yield _compiled(bench, "compile_cpp", argv, compiler_paths(cpp), f"{source}.so")
    if nvcc is not None:
        source = _source(bench, "add.cu", 'extern "C" __global__ void add(float* a) { a[threadIdx.x] += 1; }\n')
        argv = [nvcc, "-cubin", "-arch=sm_90", "-o", f"{source}.cubin", source]
        yield _compiled(bench, "compile_cuda", argv, toolkit_paths(nvcc), f"{source}.cubin")


def _compiled(bench: Bench, name: str, argv: list[str], paths: tuple[str, ...], product: str) -> Finding:
    spec = bench.spec(argv, read_only=paths, allow_fork=True)
    done = run(bench.sandbox, spec, timeout=COMPILE_SECONDS)
    held = done.returncode == 0 and os.path.getsize(product) > 0
    return Finding(name, held, f"{done.seconds:.2f} s" if held else done.stderr[-500:].decode(errors="replace"))


def _source(bench: Bench, name: str, text: str) -> str:
    path = os.path.join(bench.inside, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def _clear(bench: Bench, token: str) -> None:
    for pid in bench.with_token(token):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
