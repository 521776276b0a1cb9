"""Runs the launches of a plan as CUDA graphs, library launches included, for a caller whose scratch memory keeps its
address.

Standard library only. The gain and the rules: docs/launching.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import ne
from typing import Protocol

from .capture import capturing as is_capturing
from .cuda_driver import CudaError, Driver
from .kernel_graph import KernelGraph, Link
from .launching import LaunchFrame, PreparedLaunch

#: Fewest launches for a graph here: a library call costs the host far more than a kernel's launch.
FEWEST_LAUNCHES = 2
#: If the addresses of at most this many buffers have changed, they are expected to change again.
FEW = 4
#: How often graphs are made again because addresses changed; after that, launches are made one by one.
MOST_REMAKES = 16
#: Launches a graph, or makes a single launch, on a stream. Returns a status, 0 or None if all is well.
Piece = Callable[[int], int | None]


class Calls(Protocol):
    """The residual calls of a plan (PyTorch's own operators), which are steps among its launches. `ran` says whether
    each was made at least once. When the address of a result changes, they call the function that `tell` got, with the
    buffer's index and the address; while `fixed` is set, addresses do not change."""

    fixed: bool

    @property
    def ran(self) -> bool: ...

    def tell(self, publish: Callable[[int, int], None]) -> None: ...


class PlanGraph:
    """Makes the launches of a plan, by CUDA graphs where possible, for one caller at a time. `fail` raises an error for
    a status other than 0.

    A library launch is captured with the addresses of its buffers. So it is part of a graph only if these addresses are
    expected to stay the same; otherwise it is made between two graphs. Kernels may get other addresses at each call.
    `changing` are the indices of buffers whose addresses differ at each call; more of them are found by comparing the
    first `patience` calls, whose launches are made one by one. Residual calls (PyTorch's own operators) are treated
    like library launches, once they have run."""

    def __init__(
        self,
        driver: Driver,
        steps: Sequence[PreparedLaunch],
        fail: Callable[[int], None],
        changing: frozenset[int] = frozenset(),
        patience: int = 0,
        calls: Calls | None = None,
    ) -> None:
        self._driver, self._frame, self._fail = driver, LaunchFrame(steps, 0), fail
        self._pointers: list[int] = []
        #: Positions in the frame's words that have a buffer's address, by the number of the buffer.
        self._positions: dict[int, list[int]] = {}
        for slots in self._frame.slots:
            for position, index in slots:
                self._positions.setdefault(index, []).append(position)
        self._changing, self._patience, self._remakes = set(changing), patience, 0
        #: What a call does, in order, once the graphs are made.
        self._pieces: list[Piece] | None = None
        #: The kernels in graphs that use a buffer: the graph, and the number of its link.
        self._links: dict[int, list[tuple[KernelGraph, int]]] = {}
        #: Buffers that captured library launches use.
        self._fixed: set[int] = set()
        self._able = True
        self._calls = calls
        if calls is not None:
            calls.tell(self._publish)

    def run(self, pointers: Sequence[int], stream: int, capturing: bool | None = None) -> None:
        """Runs one call with these addresses of all buffers. `capturing` says whether the stream is being captured;
        None means that the driver is asked. Raises CudaError."""
        pieces = self.ready(pointers, stream, capturing)
        if pieces is None:
            self._frame.launch(self._fail)
            return
        for piece in pieces:
            status = piece(stream)
            if status:
                self._fail(status)

    def ready(self, pointers: Sequence[int], stream: int, capturing: bool | None = None) -> list[Piece] | None:
        """Returns the functions (launches of graphs, and single launches) that make a call with these addresses on this
        stream. Returns None if the launches have to be made one by one: in the first calls, if graphs cannot be made,
        and while the stream is being captured."""
        if pointers != self._pointers:
            self._move(list(pointers))
        if self._frame.stream != stream:
            self._frame.move(stream)
            self._forget()
        if capturing is None:
            capturing = is_capturing(self._driver, stream)
        return None if capturing else self._graphs()

    def _move(self, pointers: list[int]) -> None:
        """Uses `pointers`, the addresses of all buffers, from now on: updates the graphs, or drops them if they contain
        an address that has changed."""
        before, self._pointers = self._pointers, pointers
        if not before:
            self._frame.fill(pointers)
            return
        # Addresses of results of residual calls are never among those that move: they have none of their own.
        moved = list(compress(range(len(pointers)), map(ne, before, pointers)))
        words = self._frame.words
        for index in moved:
            for position in self._positions.get(index, ()):
                words[position] = pointers[index]
        if self._pieces is None:
            self._expect(set(moved) - self._changing)
            return
        captured = self._fixed.intersection(moved)
        if captured:
            self._expect(captured)
            self._forget()
            self._remakes += 1
            self._able = self._remakes <= MOST_REMAKES
            return
        for index in moved:
            for graph, link in self._links.get(index, ()):
                graph.update(link)

    def _forget(self) -> None:
        self._pieces, self._links, self._fixed = None, {}, set()
        if self._calls is not None:
            self._calls.fixed = False

    def _publish(self, buffer: int, address: int) -> None:
        """Uses `address` from now on for buffer number `buffer`, which holds the result of a residual call."""
        for position in self._positions.get(buffer, ()):
            self._frame.words[position] = address

    def _expect(self, moved: set[int]) -> None:
        """Treats the buffers in `moved` as `changing` from now on, if there are at most FEW of them: arguments of the
        module change their addresses one by one and often, parameters all at once and rarely."""
        if len(moved) <= FEW:
            self._changing |= moved

    @property
    def is_graph(self) -> bool:
        """Whether the CUDA graphs exist, so that calls use them."""
        return self._pieces is not None

    def _graphs(self) -> list[Piece] | None:
        """Returns the functions that make a call; they are made after `patience` calls, once all residual calls have
        run. Returns None before that, or if they cannot be made."""
        if self._pieces is not None:
            return self._pieces
        if not self._able or self._patience or not (self._calls is None or self._calls.ran):
            self._patience = max(self._patience - 1, 0)
            return None
        try:
            self._pieces = self._made()
            if self._calls is not None:
                self._calls.fixed = True
        except (AttributeError, CudaError, RuntimeError):  # PyTorch's refusals are RuntimeErrors
            self._forget()
            self._able = False
        return self._pieces

    def _made(self) -> list[Piece]:
        pieces: list[Piece] = []
        together: list[int] = []
        for number, (step, _) in enumerate(self._frame.steps):
            if self._frame.entries[number] is None:
                continue
            if step.kernel is None and self._changing.intersection(index for _, index in step.slots):
                pieces += [*self._together(together), self._alone(number)]
                together = []
            else:
                together.append(number)
        return [*pieces, *self._together(together)]

    def _together(self, numbers: list[int]) -> list[Piece]:
        """Returns a list with one function, which launches a graph of the launches `numbers`; if these are too few for
        a graph, a list with a function for each launch."""
        steps = self._frame.steps
        if len(numbers) < FEWEST_LAUNCHES:
            return [self._alone(number) for number in numbers]
        links: list[Link] = []
        for number in numbers:
            step, words = steps[number]
            if step.kernel is not None:
                links.append((step.kernel, words))
                continue
            self._fixed.update(index for _, index in step.slots)
            links.append(self._launched(number))
        graph = KernelGraph(self._driver, links)
        for link, number in enumerate(numbers):
            step = steps[number][0]
            for _, index in step.slots if step.kernel is not None else ():
                self._links.setdefault(index, []).append((graph, link))
        return [graph.start]

    def _launched(self, number: int) -> Callable[[int], object]:
        """Returns a function that makes launch number `number` on the stream that it is given. Raises CudaError when
        called."""
        step, words = self._frame.steps[number]

        def launch(stream: int) -> None:
            entry = step.enter(words, stream)
            assert entry is not None
            status = entry[0](*entry[1])
            if status:
                self._fail(status)

        return launch

    def _alone(self, number: int) -> Piece:
        entry = self._frame.entries[number]
        assert entry is not None
        function, arguments = entry
        return lambda stream: function(*arguments)
