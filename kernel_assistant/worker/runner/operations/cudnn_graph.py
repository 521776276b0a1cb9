"""Lists cuDNN's algorithms for convolutions in its graph interface, through ctypes: the engines that PyTorch uses.
Standard library only.

cuDNN's heuristics get a small graph (a convolution, then the additions of z and bias, then ReLU or SiLU) and name
configurations of engines, likely best first; each becomes an execution plan. Numbers are those of cudnn_graph.h (the
same in cuDNN 8 and 9)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_bool, c_double, c_float, c_int, c_int64, c_void_p
from typing import Any

from ..plan import BoundLibraryCall, LibraryError
from .choosing import Algorithm, Wanted, Words
from .convolution import ConvolutionShape, strides
from .cudnn_library import CROSS_CORRELATION, TYPES, Cudnn

# Kinds of descriptors.
POINTWISE, CONVOLUTION, ENGINE, CONFIGURATION, HEURISTICS, PLAN = 0, 1, 2, 3, 4, 5
FORWARD, BACKWARD_DATA, POINTWISE_OPERATION, GRAPH, PACK, TENSOR = 10, 12, 13, 15, 16, 17
# Types of attributes.
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, DOUBLE, POINTER, MODE, HEURISTIC, NOTE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 11
POINTWISE_MODE, DESCRIPTOR = 14, 15
#: Modes of pointwise operations. SiLU is cuDNN's `SWISH_FWD`, whose factor is 1 unless it is set.
MODES = {"add": 0, "bias": 0, "relu": 100, "silu": 106}
#: Modes of the heuristics: a decision tree, its quick version, and engines without a promise of speed.
TREE, INSTANT, FALLBACK = 3, 0, 2
TENSOR_CORE, DOWN_CONVERT, REDUCED_PRECISION, FOURIER, NONDETERMINISTIC = range(5)
MOST_NOTES = 32
#: First number of intermediate results of a graph, which are not stored.
VIRTUAL = 100
ALIGNMENT = 16
#: Most descriptors of operands' addresses that are kept for each plan.
MOST_PACKS = 128
#: Most plans that are not reproducible.
MOST_IRREPRODUCIBLE = 3
LEAST_WORKSPACE = 512 << 20


def graph_ways(
    library: Cudnn,
    launch: BoundLibraryCall,
    shape: ConvolutionShape,
    tf32: bool,
    fused: bool,
    deterministic: bool,
    wanted: Wanted,
) -> list[Algorithm]:
    """Returns algorithms for the convolution of a launch, likely best first: with its epilogue if `fused`, only
    reproducible ones if `deterministic`. Empty if cuDNN has none."""
    try:
        return _Graph(library, launch, shape, tf32, fused).ways(deterministic, wanted)
    except LibraryError:
        # cuDNN has no engine for this operation, or not this interface: the older one is used.
        return []


def takes_tensor_cores(library: Cudnn, launch: BoundLibraryCall, shape: ConvolutionShape) -> bool:
    """Whether PyTorch would use tensor cores for the convolution if TF32 is allowed. PyTorch takes cuDNN's first choice
    of engine, so the answer is whether that one uses them. True if cuDNN offers no engine."""
    try:
        return _Graph(library, launch, shape, True, False).first_takes_tensor_cores()
    except LibraryError:
        return True


class _Graph:
    """The cuDNN graph of one convolution, with its epilogue if `fused`. Descriptors live as long as the process."""

    def __init__(
        self, library: Cudnn, launch: BoundLibraryCall, shape: ConvolutionShape, tf32: bool, fused: bool
    ) -> None:
        self.library, self.launch, self.shape, self.tf32 = library, launch, shape, tf32
        self.dtype, self.compute = TYPES[launch.dtype], TYPES["f64" if launch.dtype == "f64" else "f32"]
        self.scalar: tuple[int, Any] = (DOUBLE, c_double) if launch.dtype == "f64" else (FLOAT, c_float)
        self.transposed = launch.library == "cudnn.conv_transpose"
        self.steps = launch.settings["epilogue"].split("_") if fused and launch.settings["epilogue"] != "none" else []
        # What is added has to be in this order: cuDNN knows convolution, z, bias, activation.
        self.steps.sort(key=("add", "bias", "relu", "silu").index)
        self.fields = [field for field in launch.fields if self.steps or field not in ("bias", "z")]
        room = sum(launch.spans.values()) * (8 if launch.dtype == "f64" else 4)
        self.most_workspace = max(LEAST_WORKSPACE, 2 * room)
        self.graph = self._build()

    def ways(self, deterministic: bool, wanted: Wanted) -> list[Algorithm]:
        algorithms: list[Algorithm] = []
        left = {True: wanted.plans, False: 0 if deterministic else min(MOST_IRREPRODUCIBLE, wanted.plans)}
        for number, configuration in enumerate(self._configurations(TREE, FALLBACK)):
            if not any(left.values()) or (wanted.name and algorithms):
                break
            name = f"cudnn graph{' fused' if self.steps else ''} {number}{' tf32' if self.tf32 else ''}"
            if wanted.name not in ("", name):
                continue
            notes = self._notes(configuration)
            reproducible = NONDETERMINISTIC not in notes
            if not left[reproducible] or not self._allowed(notes):
                continue
            with contextlib.suppress(LibraryError):  # some engines fail only when their plan is built
                plan = self._plan(configuration)
                (workspace,) = self._get(plan, 402, INT64, c_int64, 1)
                if workspace <= self.most_workspace:
                    left[reproducible] -= 1
                    algorithms.append(Algorithm(name, workspace, self._attempt(plan), reproducible))
        return algorithms

    def first_takes_tensor_cores(self) -> bool:
        for configuration in self._configurations(INSTANT, FALLBACK):
            with contextlib.suppress(LibraryError):
                self._plan(configuration)
                return TENSOR_CORE in self._notes(configuration)
        return True

    def _plan(self, configuration: c_void_p) -> c_void_p:
        return self._made(PLAN, (400, HANDLE, [self.library.handle()]), (401, DESCRIPTOR, [configuration]))

    def _attempt(self, plan: c_void_p) -> Callable[[Words, int], int]:
        """Returns a function that runs a plan. The operands' addresses are in a descriptor. The MOST_PACKS descriptors
        that were made last are kept: making one takes the host 4 µs, and a program's tensors are often at the addresses
        of an earlier call. All equal convolutions of a process share them."""
        library, lib, handle = self.library, self.library.lib, self.library.handle()
        positions = [self.launch.fields.index(field) for field in self.fields]
        scratch = len(self.launch.fields)
        packs: dict[tuple[int, ...], c_void_p] = {}
        set_stream, execute = lib.cudnnSetStream, lib.cudnnBackendExecute

        def attempt(words: Words, stream: int) -> int:
            addresses = tuple(words[: scratch + 1])
            with library.lock:
                status: int = set_stream(handle, stream)
                pack = packs.get(addresses)
                if pack is None and not status:
                    pack = c_void_p()
                    status = self._pack(pack, [addresses[position] for position in positions], addresses[scratch])
                    if not status:
                        if len(packs) >= MOST_PACKS:
                            lib.cudnnBackendDestroyDescriptor(packs.pop(next(iter(packs))))
                        packs[addresses] = pack
                return status or execute(handle, plan, pack)

        return attempt

    def _pack(self, pack: c_void_p, addresses: list[int], workspace: int) -> int:
        """Creates a descriptor of the operands' addresses and the workspace's, and writes its handle to `pack`. Returns
        cuDNN's status; if that is not 0, there is no descriptor."""
        lib, count = self.library.lib, len(addresses)
        names = (c_int64 * count)(*range(1, count + 1))
        pointers, scratch = (c_void_p * count)(*addresses), c_void_p(workspace)
        status: int = lib.cudnnBackendCreateDescriptor(PACK, byref(pack))
        if status:
            return status
        set_attribute = lib.cudnnBackendSetAttribute
        status = (
            set_attribute(pack, 1000, INT64, count, byref(names))
            or set_attribute(pack, 1001, POINTER, count, byref(pointers))
            or set_attribute(pack, 1003, POINTER, 1, byref(scratch))
            or lib.cudnnBackendFinalize(pack)
        )
        if status:
            lib.cudnnBackendDestroyDescriptor(pack)
        return status

    def _build(self) -> c_void_p:
        shape = self.shape
        tensors = {field: self._tensor(at + 1, shape.sizes_of(field)) for at, field in enumerate(self.fields)}
        results = [self._tensor(VIRTUAL + at, shape.out, virtual=True) for at in range(len(self.steps))]
        results.append(tensors["out"])
        operations = [self._convolve(tensors["x"], tensors["w"], results[0])]
        for at, step in enumerate(self.steps):
            added = tensors.get({"bias": "bias", "add": "z"}.get(step, ""))
            operations.append(self._pointwise(step, results[at], added, results[at + 1]))
        return self._made(GRAPH, (800, HANDLE, [self.library.handle()]), (801, DESCRIPTOR, operations))

    def _convolve(self, x: c_void_p, w: c_void_p, out: c_void_p) -> c_void_p:
        shape = self.shape
        convolution = self._made(
            CONVOLUTION,
            (106, INT64, [len(shape.stride)]),
            (100, DATA_TYPE, [self.compute]),
            (101, MODE, [CROSS_CORRELATION]),
            (105, INT64, shape.padding),
            (104, INT64, shape.padding),
            (102, INT64, shape.dilation),
            (103, INT64, shape.stride),
        )
        # In the order ALPHA, BETA, CONV_DESC, W, then the large and the small tensor.
        first, large, small = (706, out, x) if self.transposed else (700, x, out)
        return self._made(
            BACKWARD_DATA if self.transposed else FORWARD,
            (first, self.scalar[0], [1.0]),
            (first + 1, self.scalar[0], [0.0]),
            (first + 2, DESCRIPTOR, [convolution]),
            (first + 3, DESCRIPTOR, [w]),
            (first + 4, DESCRIPTOR, [large]),
            (first + 5, DESCRIPTOR, [small]),
        )

    def _pointwise(self, step: str, x: c_void_p, added: c_void_p | None, out: c_void_p) -> c_void_p:
        what = self._made(POINTWISE, (0, POINTWISE_MODE, [MODES[step]]), (1, DATA_TYPE, [self.compute]))
        operands = [(752, DESCRIPTOR, [added])] if added is not None else []
        return self._made(
            POINTWISE_OPERATION, (750, DESCRIPTOR, [what]), (751, DESCRIPTOR, [x]), *operands, (753, DESCRIPTOR, [out])
        )

    def _tensor(self, name: int, sizes: Sequence[int], virtual: bool = False) -> c_void_p:
        # Intermediate results have the type of the computation.
        dtype = self.compute if virtual else self.dtype
        return self._made(
            TENSOR,
            (906, INT64, [name]),
            (901, DATA_TYPE, [dtype]),
            (900, INT64, [ALIGNMENT]),
            (902, INT64, sizes),
            (903, INT64, strides(sizes, self.shape.channels_last)),
            (907, BOOLEAN, [virtual]),
        )

    def _configurations(self, *modes: int) -> Iterator[c_void_p]:
        for mode in modes:
            try:
                heuristics = self._made(HEURISTICS, (201, DESCRIPTOR, [self.graph]), (200, HEURISTIC, [mode]))
                yield from self._descriptors(heuristics, 202, CONFIGURATION)
            except LibraryError:
                continue

    def _notes(self, configuration: c_void_p) -> set[int]:
        """Returns cuDNN's numerical notes for the engine of a configuration, as numbers; one says that it uses tensor
        cores."""
        engine = self._create(ENGINE)
        count = c_int64()
        self._check("cudnnBackendGetAttribute", configuration, 300, DESCRIPTOR, 1, byref(count), byref(engine))
        return set(self._get(engine, 1303, NOTE, c_int, MOST_NOTES))

    def _allowed(self, notes: set[int]) -> bool:
        """Whether an engine with these numerical notes, as `_notes` returns them, computes in the precision that
        PyTorch would use."""
        refused = {FOURIER, REDUCED_PRECISION}
        if self.launch.dtype == "f32" and not self.tf32:
            refused |= {TENSOR_CORE, DOWN_CONVERT}
        return not notes & refused

    def _made(self, kind: int, *attributes: tuple[int, int, Sequence[Any]]) -> c_void_p:
        made = self._create(kind)
        for name, of, values in attributes:
            array = (_ELEMENTS[of] * len(values))(*values)
            self._check("cudnnBackendSetAttribute", made, name, of, len(values), byref(array))
        self._check("cudnnBackendFinalize", made)
        return made

    def _create(self, kind: int) -> c_void_p:
        made = c_void_p()
        self._check("cudnnBackendCreateDescriptor", kind, byref(made))
        return made

    def _descriptors(self, of: c_void_p, name: int, kind: int) -> list[c_void_p]:
        """Returns the descriptors in the list attribute `name` of the descriptor `of`: one query gives their number,
        another one fills them in."""
        count = c_int64()
        self._check("cudnnBackendGetAttribute", of, name, DESCRIPTOR, 0, byref(count), None)
        array = (c_void_p * count.value)(*(self._create(kind).value for _ in range(count.value)))
        self._check("cudnnBackendGetAttribute", of, name, DESCRIPTOR, count.value, byref(count), byref(array))
        return [c_void_p(array[index]) for index in range(count.value)]

    def _get(self, of: c_void_p, name: int, kind: int, element: Any, most: int) -> list[int]:
        array, count = (element * most)(), c_int64()
        self._check("cudnnBackendGetAttribute", of, name, kind, most, byref(count), byref(array))
        return list(array[: count.value])

    def _check(self, call: str, *arguments: object) -> None:
        self.library.check(call, *arguments)


_ELEMENTS: dict[int, Any] = {
    HANDLE: c_void_p,
    DATA_TYPE: c_int,
    BOOLEAN: c_bool,
    INT64: c_int64,
    FLOAT: c_float,
    DOUBLE: c_double,
    POINTER: c_void_p,
    MODE: c_int,
    HEURISTIC: c_int,
    POINTWISE_MODE: c_int,
    DESCRIPTOR: c_void_p,
}
