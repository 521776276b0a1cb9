"""The runner in the sandbox of this machine: tests its work, and the names of the ways in which it can end."""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading

import pytest

from kernel_assistant.environment.builds.compile import Compiler
from kernel_assistant.environment.session import RUNNER
from kernel_assistant.records import Candidate, Launch, to_builtins
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.sandbox.contract import SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.paths import interpreter_paths
from kernel_assistant.targets.detect import detect
from kernel_assistant.worker.running.runner_client import (
    CandidateFailure,
    RunnerClient,
    RunnerCommand,
    RunnerStartError,
    descendants,
)
from tests.judge.kernels import buffer, plan

SOURCE = """#include "plan.h"
#include <stdlib.h>
#include <string.h>
extern "C" void twice(const twice_args* a) {
  for (int64_t i = 0; i < a->count; i++) a->o[i] = 2 * a->x[i] + a->s[0] * 0;
  if (a->x[0] == 1001) abort();
  if (a->x[0] == 1002) *(volatile int*)8 = 1;
  if (a->x[0] == 1003) for (volatile int go = 1; go;) {}
  if (a->x[0] == 1004) for (size_t n = 0;; n++) memset(malloc(1 << 26), 1, 1 << 26);
  if (a->x[0] == 1005) exit(3);
}
"""
PLAN = plan(
    inputs=(buffer("x0", "B"),),
    outputs=(buffer("out0", "B"),),
    scratch=(buffer("s", "4"),),
    launches=(Launch(symbol="twice", args=(("x", "x0"), ("o", "out0"), ("s", "s"), ("count", "B"))),),
)
SETS, COUNT, ROOM = 3, 16, 4096


@pytest.fixture(scope="module")
def command():
    paths = interpreter_paths(sys.executable)
    spec = SandboxSpec(
        argv=(paths[0], "-I", "-S", str(RUNNER / "boot.py"), "{fd}"),
        read_only=(*paths, str(RUNNER)),
        limits=SandboxLimits(
            memory_bytes=1 << 30, shared_bytes=1 << 30, processes=64, file_bytes=1 << 20, cpu_seconds=600
        ),
    )
    made = choose("auto").command(spec)
    return RunnerCommand(tuple(made.argv), made.env, "cpu")


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    compiler = Compiler(detect("cpu"), choose("auto"), tmp_path_factory.mktemp("builds"), threading.Event())
    return compiler.build(Candidate(plan=PLAN, sources={"twice.cpp": SOURCE})).content


class Memory:
    """A memfd that the test reads and writes as floats."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("test")
        os.ftruncate(self.descriptor, ROOM)
        self._map = mmap.mmap(self.descriptor, ROOM)

    def write(self, offset: int, *values: float) -> None:
        struct.pack_into(f"{len(values)}f", self._map, offset, *values)

    def read(self, offset: int, count: int) -> list[float]:
        return list(struct.unpack_from(f"{count}f", self._map, offset))


class Held:
    """A runner with the kernel loaded and three sets bound."""

    def __init__(self, command: RunnerCommand, binary: bytes) -> None:
        self.client = RunnerClient(command)
        self.inputs, self.outputs = Memory(), Memory()
        self.prepare(binary)

    def prepare(self, binary: bytes) -> None:
        load(self.client, binary)
        for name, memory, writable in (("inputs", self.inputs, False), ("outputs", self.outputs, True)):
            message = {"op": "map", "arena": name, "bytes": ROOM, "writable": writable}
            self.client.request(message, 30, (memory.descriptor,))
        sets = [
            {"dims": {"B": COUNT}, "tensors": {"x0": ["inputs", 1024 * i], "out0": ["outputs", 1024 * i]}}
            for i in range(SETS)
        ]
        self.client.request({"op": "bind", "sets": sets}, 30)

    def run(self, first: int, count: int, timeout: float = 30) -> dict:
        return self.client.request({"op": "run", "first": first, "count": count}, timeout)

    def close(self) -> None:
        self.client.close()
        for memory in (self.inputs, self.outputs):
            os.close(memory.descriptor)


def load(client: RunnerClient, binary: bytes, changed: dict | None = None) -> None:
    descriptor = os.memfd_create("binary")
    try:
        os.write(descriptor, binary)
        client.request({"op": "load", "plan": {**to_builtins(PLAN), **(changed or {})}}, 30, (descriptor,))
    finally:
        os.close(descriptor)


@pytest.fixture
def held(command, binary):
    made = Held(command, binary)
    yield made
    made.close()


def test_a_plan_runs_on_its_sets(held):
    for index in range(SETS):
        held.inputs.write(1024 * index, *[index + value / 8 for value in range(COUNT)])
    assert held.run(0, SETS)["seconds"] > 0
    for index in range(SETS):
        assert held.outputs.read(1024 * index, COUNT) == [2 * (index + value / 8) for value in range(COUNT)]
    assert held.outputs.read(4 * COUNT, 8) == [0.0] * 8


def test_a_run_goes_around_the_ring(held):
    for index in range(SETS):
        held.inputs.write(1024 * index, *[1.0] * COUNT)
    held.run(2, 2)
    assert [held.outputs.read(1024 * index, 1) for index in range(SETS)] == [[2.0], [0.0], [2.0]]
    held.run(0, 0)
    assert held.outputs.read(1024, 1) == [0.0]


def test_what_is_forgotten_is_not_held_and_another_task_can_come(held, binary):
    def mapped() -> str:
        own = [pid for pid in descendants(held.client.process.pid) if "memfd:test" in _maps(pid)]
        return " ".join(map(str, own))

    assert mapped()
    held.client.request({"op": "forget"}, 30)
    assert not mapped()
    held.prepare(binary)
    held.inputs.write(0, *[3.0] * COUNT)
    held.run(0, 1)
    assert held.outputs.read(0, COUNT) == [6.0] * COUNT


def _maps(pid: int) -> str:
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return file.read()


ENDS = {
    "abort": (1001.0, "crashed", "SIGABRT"),
    "segfault": (1002.0, "crashed", "SIGSEGV"),
    "endless": (1003.0, "hung", "killed"),
    "exit": (1005.0, "crashed", "status 3"),
}


@pytest.mark.parametrize(("trigger", "outcome", "said"), ENDS.values(), ids=ENDS)
def test_how_it_ends_is_named(held, trigger, outcome, said):
    held.inputs.write(0, trigger)
    with pytest.raises(CandidateFailure, match=said) as caught:
        held.run(0, 1, timeout=1.0 if outcome == "hung" else 30)
    assert caught.value.outcome == outcome
    held.client.close()
    assert held.client.process.poll() is not None


def test_memory_is_limited(held):
    held.inputs.write(0, 1004.0)
    with pytest.raises(CandidateFailure) as caught:
        held.run(0, 1)
    # malloc gives nothing and memset writes there, or the kernel kills the process: by the sandbox that is in use.
    assert caught.value.outcome in ("crashed", "out_of_memory")


BAD = {
    "unknown operation": ({"op": "format"}, "format"),
    "unknown arena": ({"op": "bind", "sets": [{"dims": {"B": 4}, "tensors": {"x0": ["a", 0], "out0": ["a", 0]}}]}, "a"),
    "size missing": ({"op": "bind", "sets": [{"dims": {}, "tensors": {}}]}, "unknown dimension 'B'"),
    "buffer missing": ({"op": "bind", "sets": [{"dims": {"B": 4}, "tensors": {}}]}, "x0"),
}


@pytest.mark.parametrize(("message", "said"), BAD.values(), ids=BAD)
def test_bad_requests_are_answered_and_it_goes_on(held, message, said):
    with pytest.raises(CandidateFailure, match=said):
        held.client.request(message, 30)
    assert held.client.process.poll() is None or message["op"] == "format"


def test_a_binary_that_is_none_is_refused(command):
    client = RunnerClient(command)
    with pytest.raises(CandidateFailure, match=r"invalid ELF header|file too short"):
        load(client, b"no binary at all" * 10)
    client.close()


def test_a_plan_with_another_symbol_is_refused(command, binary):
    client = RunnerClient(command)
    load(client, binary, {"launches": [{"symbol": "thrice", "args": []}]})
    with pytest.raises(CandidateFailure, match="no symbol thrice"):
        client.request({"op": "bind", "sets": [{"dims": {"B": 4}, "tensors": {}}]}, 30)
    client.close()


def test_a_runner_that_cannot_start_is_not_the_candidates_fault():
    client = RunnerClient(RunnerCommand((sys.executable, "-c", "raise SystemExit('no luck today')"), {}, "cpu"))
    with pytest.raises(RunnerStartError, match="no luck today"):
        client.wait_ready()
    client.close()


def test_nothing_that_the_user_installed_is_loaded_beside_generated_code(held):
    held.run(0, 1)
    mapped = ""
    for pid in descendants(held.client.process.pid):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            mapped += file.read()
    assert "memfd:binary" in mapped
    assert "site-packages" not in mapped
