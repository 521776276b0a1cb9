"""What a plan with library launches asks of the driver, on a driver that only notes what would run.

`test_gpu_plan_graph.py` has the same on a GPU, with values.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_uint64, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_assistant.worker.runner.cuda_driver import CudaError
from kernel_assistant.worker.runner.kernel_graph import Kernel, NodeParameters
from kernel_assistant.worker.runner.launching import PreparedLaunch
from kernel_assistant.worker.runner.plan_graph import MOST_REMAKES, PlanGraph

#: What ran: the name of a launch with its two addresses.
Ran = tuple[int, int, int]
OWN_STREAM, STREAM, OTHER = 77, 5, 6


def _value(argument: Any) -> int:
    return int(getattr(getattr(argument, "_obj", argument), "value", 0) or 0)


class NotedDriver:
    """A driver whose graphs note, when they are launched, what would run: kernels with the words that they were last
    given, captured launches with the words of the capture."""

    stream = OWN_STREAM

    def __init__(self) -> None:
        self.lib = SimpleNamespace(
            cuStreamEndCapture=self._end_capture,
            cuStreamIsCapturing=self._is_capturing,
            cuGraphExecKernelNodeSetParams_v2=self._set,
            cuGraphLaunch=self._launch_graph,
            cuGraphDestroy=self._destroy,
            cuGraphExecDestroy=self._destroy,
        )
        self.ran: list[Ran] = []
        self.launches: list[str] = []
        self.graphs: dict[int, list[Any]] = {}
        self.open: list[Ran] | None = None
        self.busy_stream = 0
        self.refuses = False
        self._count = 100

    def _new(self, target: Any, content: list[Any]) -> None:
        self._count += 1
        self.graphs[self._count] = content
        target._obj.value = self._count

    def check(self, call: str, *arguments: Any) -> None:
        if self.refuses:
            self.fail(call, 801)
        if call == "cuGraphCreate":
            self._new(arguments[0], [])
        elif call == "cuGraphInstantiateWithFlags":
            self._new(arguments[0], self.graphs[_value(arguments[1])])
        elif call == "cuGraphAddKernelNode_v2":
            node, graph, _, _, settings = arguments
            self._new(node, [])
            self.graphs[_value(graph)].append([_value(node), self._read(settings._obj)])
        elif call == "cuGraphAddChildGraphNode":
            node, graph, _, _, child = arguments
            self._new(node, [])
            self.graphs[_value(graph)].append([_value(node), *self.graphs[_value(child)]])
        elif call == "cuStreamBeginCapture_v2":
            assert _value(arguments[0]) == OWN_STREAM
            self.open = []

    def fail(self, call: str, code: int) -> None:
        raise CudaError(call, code, "refused")

    def _end_capture(self, stream: Any, graph: Any) -> int:
        assert self.open is not None
        self._new(graph, list(self.open))
        self.open = None
        return 0

    def _is_capturing(self, stream: Any, status: Any) -> int:
        status._obj.value = int(_value(stream) == self.busy_stream != 0)
        return 0

    def _set(self, executable: Any, node: Any, settings: Any) -> int:
        for entry in self.graphs[_value(executable)]:
            if entry[0] == _value(node):
                entry[1] = self._read(settings._obj)
        return 0

    def _launch_graph(self, executable: Any, stream: Any) -> int:
        self.launches.append("graph")
        for _, *some in self.graphs[_value(executable)]:
            self.ran += some
        return 0

    def _destroy(self, graph: Any) -> int:
        return 0

    def _read(self, settings: NodeParameters) -> Ran:
        pointer = ctypes.cast(settings.parameters, POINTER(c_void_p))[0]
        words = ctypes.cast(pointer, POINTER(c_uint64))
        return int(settings.function or 0), words[0], words[1]

    def launch(self, name: int) -> Callable[[Any, int], Any]:
        """The call of a launch: noted as run, or as captured while its stream is."""

        def enter(words: Any, stream: int) -> Any:
            def call() -> int:
                found = name, int(words[0]), int(words[1])
                if self.open is not None and stream == OWN_STREAM:
                    self.open.append(found)
                else:
                    self.launches.append("one")
                    self.ran.append(found)
                return 0

            return call, ()

        return enter

    def step(self, name: int, first: int, second: int) -> PreparedLaunch:
        """A launch that reads one buffer and writes another: a library's if its name is odd."""
        kernel = None if name % 2 else Kernel(c_void_p(name), (1,) * 7)
        return PreparedLaunch([0, 0], [(0, first), (1, second)], self.launch(name), kernel)


#: Buffers: 0 is an input of a kernel, 1 one of a library launch, 2, 3, 8, 9 and 10 are weights, 4 is the result, 5 to 7
#: are scratch memory.
PLAN = (
    (2, 0, 5),
    (11, 2, 6),
    (13, 3, 7),
    (15, 8, 6),
    (17, 9, 7),
    (19, 10, 6),
    (21, 1, 6),
    (4, 6, 5),
    (6, 5, 7),
    (23, 7, 4),
)
PLACES = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99]
ONE_BY_ONE = ["one"] * len(PLAN)


def refuse(status: int) -> None:
    raise RuntimeError(f"status {status}")


@pytest.fixture
def driver() -> NotedDriver:
    return NotedDriver()


def plan_graph(driver: NotedDriver, patience: int = 0) -> PlanGraph:
    steps = [driver.step(*one) for one in PLAN]
    return PlanGraph(driver, steps, refuse, frozenset((4,)), patience)  # type: ignore[arg-type]


def at(**places: int) -> list[int]:
    """The addresses of all buffers, some of them others than usual."""
    return [places.get(f"b{index}", place) for index, place in enumerate(PLACES)]


def ran(driver: NotedDriver, graph: PlanGraph, pointers: list[int], stream: int = STREAM) -> list[str]:
    """How a call launched what it should have: on these addresses, in this order."""
    driver.ran.clear()
    driver.launches.clear()
    graph.run(pointers, stream)
    assert driver.ran == [(name, pointers[first], pointers[second]) for name, first, second in PLAN]
    return list(driver.launches)


def test_one_graph_and_the_library_launch_that_writes_the_result(driver: NotedDriver) -> None:
    graph = plan_graph(driver)
    for result in (50, 51, 52):
        assert ran(driver, graph, at(b4=result)) == ["graph", "one"]


def test_inputs_of_kernels_are_elsewhere_at_each_call(driver: NotedDriver) -> None:
    graph = plan_graph(driver)
    for call in range(5):
        assert ran(driver, graph, at(b0=1000 + call, b4=2000 + call)) == ["graph", "one"]


def test_an_input_of_a_library_launch_moves(driver: NotedDriver) -> None:
    """The launch that reads it stands between two graphs from then on."""
    graph = plan_graph(driver)
    assert ran(driver, graph, at()) == ["graph", "one"]
    for call in range(3):
        assert ran(driver, graph, at(b1=2000 + call)) == ["graph", "one", "graph", "one"]


def test_the_first_calls_show_what_moves(driver: NotedDriver) -> None:
    graph = plan_graph(driver, patience=2)
    for call in range(2):
        assert ran(driver, graph, at(b1=2000 + call)) == ONE_BY_ONE
    for call in range(3):
        assert ran(driver, graph, at(b1=3000 + call)) == ["graph", "one", "graph", "one"]


def test_weights_move_all_at_once(driver: NotedDriver) -> None:
    """Graphs are made again, and library launches stay in them."""
    graph = plan_graph(driver)
    ran(driver, graph, at())
    moved = at(b2=31, b3=41, b8=91, b9=96, b10=100)
    for _ in range(2):
        assert ran(driver, graph, moved) == ["graph", "one"]


def test_weights_that_move_at_each_call_end_in_single_launches(driver: NotedDriver) -> None:
    graph = plan_graph(driver)
    seen = [ran(driver, graph, [place + 1000 * call for place in PLACES]) for call in range(MOST_REMAKES + 4)]
    assert seen[0] == seen[MOST_REMAKES] == ["graph", "one"]
    assert seen[-1] == ONE_BY_ONE


def test_while_somebody_captures_the_stream(driver: NotedDriver) -> None:
    graph = plan_graph(driver)
    driver.busy_stream = STREAM
    assert ran(driver, graph, at()) == ONE_BY_ONE
    driver.busy_stream = 0
    assert ran(driver, graph, at()) == ["graph", "one"]


def test_another_stream(driver: NotedDriver) -> None:
    graph = plan_graph(driver)
    for stream in (STREAM, OTHER, STREAM):
        assert ran(driver, graph, at(), stream) == ["graph", "one"]


def test_a_driver_that_cannot(driver: NotedDriver) -> None:
    driver.refuses = True
    graph = plan_graph(driver)
    for _ in range(2):
        assert ran(driver, graph, at()) == ONE_BY_ONE


def test_graphs_that_are_made_before_the_first_call(driver: NotedDriver) -> None:
    graph = plan_graph(driver)
    graph.ready(at(), STREAM)
    assert graph.is_graph
    assert not driver.ran
    assert ran(driver, graph, at()) == ["graph", "one"]


class NotedCalls:
    """A residual call that reads buffer 6 and makes buffer 7, each time elsewhere while that is not fixed."""

    def __init__(self, driver: NotedDriver) -> None:
        self.fixed, self.ran = False, False
        self.step = PreparedLaunch([0], [(0, 6)], self._enter)
        self._driver, self.place = driver, 500

    def tell(self, publish: Callable[[int, int], None]) -> None:
        self._publish = publish

    def _enter(self, words: Any, stream: int) -> Any:
        def call() -> None:
            if not self.fixed:
                self.place += 1
                self._publish(7, self.place)
            enter = self._driver.launch(31)((c_uint64 * 2)(words[0], self.place), stream)
            enter[0]()
            self.ran = True

        return call, ()


def test_a_residual_call_is_captured_behind_its_first_run(driver: NotedDriver) -> None:
    """A kernel and a library launch behind it read where the captured call has its result. Graphs that are made again
    have it elsewhere."""
    calls = NotedCalls(driver)
    steps = [driver.step(2, 0, 5), driver.step(11, 2, 6), calls.step, driver.step(6, 7, 5), driver.step(13, 7, 6)]
    steps.append(driver.step(4, 6, 4))
    graph = PlanGraph(driver, steps, refuse, frozenset((0, 4)), 0, calls)  # type: ignore[arg-type]
    made = [(STREAM, 501), (STREAM, 502), (STREAM, 502), (OTHER, 503), (OTHER, 503)]
    for call, (stream, place) in enumerate(made):
        driver.ran.clear()
        driver.launches.clear()
        pointers = at(b0=1000 + call, b4=2000 + call)
        graph.run(pointers, stream)
        assert calls.place == place
        assert driver.ran == [
            (2, pointers[0], 60),
            (11, 30, 70),
            (31, 70, place),
            (6, place, 60),
            (13, place, 70),
            (4, 70, pointers[4]),
        ]
        assert driver.launches == (["one"] * 6 if call == 0 else ["graph"])


def test_a_residual_call_that_reads_what_moves_stands_between_graphs(driver: NotedDriver) -> None:
    calls = NotedCalls(driver)
    steps = [driver.step(2, 0, 5), driver.step(11, 2, 6), calls.step, driver.step(6, 7, 5), driver.step(13, 7, 3)]
    graph = PlanGraph(driver, steps, refuse, frozenset((6,)), 0, calls)  # type: ignore[arg-type]
    for call in range(4):
        driver.ran.clear()
        pointers = at(b6=3000 + call)
        graph.run(pointers, STREAM)
        assert (31, 3000 + call, calls.place) in driver.ran and calls.place == 501
        assert [name for name, *_ in driver.ran] == [2, 11, 31, 6, 13]
        assert (6, 501, 60) in driver.ran and (13, 501, 40) in driver.ran
