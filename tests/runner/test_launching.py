"""Prepared launches: the arguments that reach the driver, and that no two callers share an argument struct."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from ctypes import CFUNCTYPE, POINTER, c_float, c_int, c_uint64, c_void_p
from pathlib import Path

import pytest

from kernel_assistant.worker.runner.executor import CpuModule, bind
from kernel_assistant.worker.runner.kernel_graph import Kernel
from kernel_assistant.worker.runner.launching import Config, LaunchFrame, PreparedLaunch, kernel_entry
from kernel_assistant.worker.runner.plan import PlanError

LAUNCH = CFUNCTYPE(c_int, POINTER(Config), c_void_p, POINTER(c_void_p), c_void_p)

SOURCE = """
#include <stdint.h>
typedef struct { const float* x; float* o; int64_t n; int64_t times; } args;
void scale(const args* a) { for (int64_t i = 0; i < a->n; i++) a->o[i] = a->x[i] * a->times; }
"""

PLAN = {
    "target": "cpu",
    "dims": ["B"],
    "inputs": [{"name": "x", "dtype": "f32", "shape": ["B"]}],
    "outputs": [{"name": "out", "dtype": "f32", "shape": ["B"]}],
    "scratch": [{"name": "half", "dtype": "f32", "shape": ["B"]}],
    "launches": [
        {"symbol": "scale", "args": [["x", "x"], ["o", "half"], ["n", "B"], ["times", "2"]]},
        {"symbol": "scale", "args": [["x", "half"], ["o", "out"], ["n", "B"], ["times", "3"]]},
    ],
}


class FakeDriver:
    """Records the arguments that cuLaunchKernelEx would get; the C type is the driver's."""

    def __init__(self, status: int = 0) -> None:
        self.seen: list[tuple[int, tuple[int, ...], int, int | None, list[int]]] = []
        self.status = status
        self.call = LAUNCH(self._launch)

    def _launch(self, config, function, parameters, extra):
        words = ctypes.cast(parameters[0], POINTER(c_uint64))
        found = config.contents
        assert (extra, found.attributes, found.attribute_count) == (None, None, 0)
        self.seen.append(
            (function, tuple(found.grid_and_block), found.shared, found.stream, [words[at] for at in range(3)])
        )
        return self.status

    def prepared(self, function: int, words: list[int], slots: list[tuple[int, int]]) -> PreparedLaunch:
        geometry = (5, 2, 1, 128, 1, 1, 4096)

        def enter(struct, stream):
            return kernel_entry(self.call, c_void_p(function), geometry, struct, stream)

        return PreparedLaunch(words, slots, enter)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def refuse(status: int) -> None:
    raise RuntimeError(f"status {status}")


def test_what_the_driver_gets(driver: FakeDriver) -> None:
    steps = [driver.prepared(7, [0, 11, 0], [(0, 1), (2, 0)]), driver.prepared(8, [0, 0, 12], [(0, 2), (1, 1)])]
    frame = LaunchFrame(steps, 0)
    frame.fill([100, 200, 300])
    frame.launch(refuse)
    geometry = (5, 2, 1, 128, 1, 1)
    assert driver.seen == [(7, geometry, 4096, None, [200, 11, 100]), (8, geometry, 4096, None, [300, 200, 12])]
    driver.seen.clear()
    frame.move(0x5EED)
    frame.launch_one(1, [1, 2, 3], refuse)
    assert driver.seen == [(8, geometry, 4096, 0x5EED, [3, 2, 12])]


def test_a_status_is_raised() -> None:
    failing = FakeDriver(700)
    frame = LaunchFrame([failing.prepared(7, [0, 0, 0], [])], 0)
    with pytest.raises(RuntimeError, match="status 700"):
        frame.launch(refuse)


class Grapher:
    """Makes graphs that record their launches, unless there is nothing to combine or a capture is running."""

    def __init__(self, *, able: bool = True) -> None:
        self.able, self.captured, self.launched = able, False, []

    def capturing(self, stream):
        return self.captured

    def graph(self, kernels):
        assert len(kernels) == 3
        return self if self.able else None

    def launch(self, stream):
        self.launched.append(stream)
        return 0


def chain(driver: FakeDriver, *, kernels: int = 3) -> list[PreparedLaunch]:
    found = [driver.prepared(at, [0, 0, 0], [(0, 0)]) for at in range(1, 4)]
    return [
        step._replace(kernel=Kernel(c_void_p(at), (1,) * 7)) if at < kernels else step for at, step in enumerate(found)
    ]


def test_a_chain_of_kernels_is_one_launch(driver: FakeDriver) -> None:
    frame = LaunchFrame(chain(driver), 0, grapher := Grapher())
    for stream in (0, 9):
        frame.move(stream)
        frame.launch(refuse)
    assert (grapher.launched, driver.seen) == ([0, 9], [])
    grapher.captured = True
    frame.launch(refuse)
    assert (grapher.launched, len(driver.seen)) == ([0, 9], 3)


def test_one_by_one_where_a_graph_cannot_be(driver: FakeDriver) -> None:
    frames = [
        LaunchFrame(chain(driver), 0, Grapher(able=False)),
        LaunchFrame(chain(driver, kernels=2), 0, Grapher()),
        LaunchFrame(chain(driver)[:2], 0, Grapher()),
    ]
    for frame, count in zip(frames, (3, 3, 2), strict=True):
        driver.seen.clear()
        frame.launch(refuse)
        frame.launch(refuse)
        assert len(driver.seen) == 2 * count


def test_nothing_to_launch() -> None:
    frame = LaunchFrame([PreparedLaunch([1], [], lambda words, stream: None)], 0)
    frame.launch(refuse)
    assert frame.entries == [None]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    folder: Path = tmp_path_factory.mktemp("scale")
    (folder / "scale.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "scale.c", "-o", "scale.so"], cwd=folder, check=True)
    return CpuModule(str(folder / "scale.so"))


def test_many_threads_and_a_call_inside_a_call(module: CpuModule) -> None:
    """Frames are lent: simultaneous callers, and a call that interrupts another, each have a frame of their own."""
    size = 300
    bound = bind(PLAN, {"B": size}, module)

    def once(value: int) -> bool:
        blocks = [(c_float * size)(*([float(value)] * size)) for _ in range(3)]
        x, out, half = (ctypes.addressof(block) for block in blocks)
        for _ in range(50):
            bound.run([x, out, half])
        return all(found == 6.0 * value for found in blocks[1])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(once, range(1, 33)))
    assert 1 <= len(bound._frames) <= 4

    held = bound._frames.pop()
    held.fill([1, 2, 3])
    before = list(held.words)
    assert once(5)
    assert list(held.words) == before


def test_frozen_calls_keep_their_own_pointers(module: CpuModule) -> None:
    bound = bind(PLAN, {"B": 4}, module)
    sets = [[(c_float * 4)(*([value] * 4)) for _ in range(3)] for value in (1.0, 2.0)]
    calls = [bound.freeze([ctypes.addressof(block) for block in blocks]) for blocks in sets]
    for call in (*calls, calls[0]):
        call(0)
    assert [list(blocks[1]) for blocks in sets] == [[6.0] * 4, [12.0] * 4]


def test_a_symbol_that_is_not_there(module: CpuModule) -> None:
    plan = {**PLAN, "launches": [{"symbol": "missing", "args": []}]}
    with pytest.raises(PlanError, match="no symbol missing"):
        bind(plan, {"B": 4}, module)
