"""Checks of the limits, and that no process survives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from kernel_assistant.sandbox.contract import SandboxLimits
from kernel_assistant.sandbox.launcher import address_bytes
from kernel_assistant.sandbox.paths import compiler_paths, toolkit_paths
from kernel_assistant.sandbox.run import run
from tests.sandbox.checks.bench import ProbeFolders, ProbeResult, wait_until, with_token

MIB = 1 << 20
GIB = 1 << 30
COMPILE_SECONDS = 60.0


def memory(bench: ProbeFolders) -> Iterator[ProbeResult]:
    limits = SandboxLimits(memory_bytes=256 * MIB)
    private = bench.probe("take_memory", 1 * GIB, False, limits=limits)
    bound = address_bytes(bench.spec(("true",), limits=limits))
    shared = bench.probe("take_memory", bound + 4 * GIB, True, limits=limits)
    memfd = bench.probe("make_memfd", limits=limits)
    held = private <= 256 * MIB and shared <= bound and bool(memfd)
    detail = f"private {private >> 20} MiB, shared {shared >> 20} MiB, memfd {memfd or 'made'}"
    yield ProbeResult("memory", held, detail)


def processes(bench: ProbeFolders) -> Iterator[ProbeResult]:
    errors = bench.probe("fork_each")
    yield ProbeResult("fork", all(errors.values()), f"{errors}")
    threads = bench.probe("start_threads", 32)
    yield ProbeResult("threads", threads == 32, f"{threads} of 32")
    # Enough memory that the stacks do not limit the number of threads.
    limits = SandboxLimits(processes=48, memory_bytes=64 * GIB)
    threads = bench.probe("start_threads", 400, limits=limits)
    yield ProbeResult("thread_limit", threads < 400, f"{threads} of 400")
    done = run(bench.sandbox, bench.probe_spec("fork_bomb", 2000, limits=limits, allow_fork=True), timeout=20)
    started = int(done.stdout or b"-1")
    limited = done.exceeded == "processes" or 0 <= started < 2000
    yield ProbeResult("process_limit", limited, f"{done.exceeded} {started}")


def survivors(bench: ProbeFolders) -> Iterator[ProbeResult]:
    token = f"top-{bench.token}"
    command = bench.sandbox.command(bench.probe_spec("leave_children", token, allow_fork=True))
    top = subprocess.Popen(command.argv, env=command.env, start_new_session=True)
    started = wait_until(lambda: len(with_token(token)) == 2)
    top.kill()
    top.wait()
    gone = wait_until(lambda: not with_token(token), 2.0)
    yield ProbeResult("kill_tree", gone if started else None, f"{len(with_token(token))} left")
    _clear(token)


def time_limit(bench: ProbeFolders) -> Iterator[ProbeResult]:
    """Checks that nothing survives the time limit. It is long enough for the children to start, which is checked while
    they run."""
    token = f"time-{bench.token}"
    done = run(bench.sandbox, bench.probe_spec("leave_children", token, allow_fork=True), timeout=1.5)
    left = with_token(token)
    yield ProbeResult("timeout", done.timed_out and not left, f"{len(left)} left after {done.seconds:.2f} s")
    _clear(token)


def compilers(bench: ProbeFolders) -> Iterator[ProbeResult]:
    cpp, nvcc = shutil.which("g++"), shutil.which("nvcc")
    if cpp is not None:
        argv = (cpp, "-shared", "-fPIC", "-fopenmp", "-O1")
        text = 'extern "C" int add(int a, int b) { return a + b; }\n'
        yield _compiled(bench, "compile_cpp", argv, compiler_paths(cpp), text)
    if nvcc is not None:
        text = 'extern "C" __global__ void add(float* a) { a[threadIdx.x] += 1; }\n'
        yield _compiled(bench, "compile_cuda", (nvcc, "-cubin", "-arch=sm_90"), toolkit_paths(nvcc), text)


def _compiled(bench: ProbeFolders, name: str, argv: tuple[str, ...], paths: tuple[str, ...], text: str) -> ProbeResult:
    source = os.path.join(bench.inside, "add.cu" if name == "compile_cuda" else "add.cpp")
    with open(source, "w", encoding="ascii") as file:
        file.write(text)
    spec = bench.spec((*argv, "-o", f"{source}.out", source), read_only=paths, allow_fork=True)
    done = run(bench.sandbox, spec, timeout=COMPILE_SECONDS)
    held = done.returncode == 0 and os.path.getsize(f"{source}.out") > 0
    return ProbeResult(name, held, f"{done.seconds:.2f} s" if held else done.stderr[-500:].decode(errors="replace"))


def _clear(token: str) -> None:
    for pid in with_token(token):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
