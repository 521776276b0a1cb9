"""Computes matrix products by cuBLASLt, through ctypes. Standard library only.

cuBLASLt is column-major: a row-major product out = a·b is its product outᵀ = bᵀ·aᵀ, so its first operand is our `b`.
Numbers are those of cublasLt.h, cublas_api.h and library_types.h (the same in CUDA 12 and 13)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import NamedTuple

from ..plan import BoundLibraryCall, LibraryError
from .choosing import Algorithm, Wanted, Words
from .opened_library import OpenedLibrary, declare

TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_FAST_TF32 = 68, 70, 77
EPILOGUES = {"none": 1, "relu": 2, "bias": 4, "bias_relu": 6, "gelu": 32, "bias_gelu": 36}
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_OFFSET = 5, 6
PREF_WORKSPACE, PREF_REDUCTION, PREF_ALIGNMENTS = 1, 3, (5, 6, 7, 8)
#: Partial sums over k are added in the compute type, never in the output's.
REDUCTION_COMPUTE_TYPE = 2
MOST_WORKSPACE = 32 << 20
#: Alignment in bytes that applied packages require of tensors.
ALIGNMENT = 16
ALGORITHMS = 6
INT_MAX = 2**31 - 1
#: Elements along k that tensor cores add by themselves: they cut off what does not fit, so that the error of a sum
#: grows with its length. Sums of such pieces are added in float32.
PIECE = 1024


class HeuristicResult(ctypes.Structure):
    """The C structure cublasLtMatmulHeuristicResult_t; the algorithm is eight opaque words."""

    _fields_ = [
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


SIGNATURES: dict[str, list[object]] = {
    "cublasLtCreate": [c_void_p],
    "cublasLtMatmulDescCreate": [c_void_p, c_int, c_int],
    "cublasLtMatmulDescSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatrixLayoutCreate": [c_void_p, c_int, c_uint64, c_uint64, c_int64],
    "cublasLtMatrixLayoutSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulPreferenceCreate": [c_void_p],
    "cublasLtMatmulPreferenceSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulPreferenceDestroy": [c_void_p],
    "cublasLtMatmulAlgoGetHeuristic": [*[c_void_p] * 7, c_int, c_void_p, c_void_p],
    "cublasLtMatmul": [*[c_void_p] * 14, c_size_t, c_void_p],
}


class CublasLt(OpenedLibrary):
    """The library cuBLASLt. Its descriptors live as long as the process."""

    create, status_name = "cublasLtCreate", "cublasLtGetStatusName"

    def __init__(self, paths: dict[str, str]) -> None:
        super().__init__(load(paths["cublaslt"]))

    def version(self) -> str:
        return ""

    def ways(self, launch: BoundLibraryCall, tf32: bool, deterministic: bool, wanted: Wanted) -> list[Algorithm]:
        """Returns the algorithms that the library's heuristics suggest for a launch; if there is nothing to compute, a
        single one that does nothing. Raises LibraryError if the sizes do not fit the buffers. `deterministic` and
        `wanted` have no effect."""
        sizes = launch.sizes
        check_spans(launch)
        if 0 in (sizes["m"], sizes["n"], sizes["batch"]):
            return [Algorithm("nothing", 0, lambda words, stream: 0)]
        if launch.settings["compute"] == "split":
            return split_ways(self, launch)
        operation = Operation(self, launch.dtype, launch.fields, launch.settings, sizes, tf32)
        return [operation.way(result) for result in operation.heuristics()]


def split_ways(library: CublasLt, launch: BoundLibraryCall) -> list[Algorithm]:
    """Returns algorithms for a float32 product in TF32, where each operand is split into a part with TF32's mantissa
    (`a`, `b`) and the rest (`a_low`, `b_low`): a_low·b + a·b_low, then a·b in pieces along k. Raises LibraryError for
    another dtype."""
    if launch.dtype != "f32":
        raise LibraryError(f"{launch.symbol}: only float32 is split")
    steps = list(_steps(library, launch))
    known = {id(operation): operation.heuristics() for operation in {step.operation for step in steps}}
    suggestions = [known[id(step.operation)] for step in steps]
    ways = []
    for number in range(min(map(len, suggestions))):
        parts = [step.operation.way(results[number]) for step, results in zip(steps, suggestions, strict=True)]
        name = f"split {parts[0].name}"
        ways.append(Algorithm(name, max(part.workspace for part in parts), _in_order(launch.fields, steps, parts)))
    return ways


class _Step(NamedTuple):
    """One of the products whose sum is the result. `reads` has one entry for each field of `operation`, in their order:
    the field of the launch whose buffer is used, and an offset in bytes from the beginning of that buffer."""

    operation: Operation
    reads: list[tuple[str, int]]


def _steps(library: CublasLt, launch: BoundLibraryCall) -> Iterator[_Step]:
    settings, sizes = launch.settings, launch.sizes
    plain = {**settings, "epilogue": "none"}
    onto = {**plain, "beta": "1"}
    sizes = {**sizes, "ldc": sizes["ldo"], "stride_c": sizes["stride_o"]}
    added = {"c": "c"} if "c" in launch.fields else {}
    first = Operation(library, "f32", ["a", "b", *added, "out"], plain, launch.sizes, True)
    yield _Step(first, [("a_low", 0), ("b", 0), *((field, 0) for field in added), ("out", 0)])
    second = Operation(library, "f32", ["a", "b", "c", "out"], onto, sizes, True)
    yield _Step(second, [("a", 0), ("b_low", 0), ("out", 0), ("out", 0)])
    along_a = sizes["lda"] if settings["transpose_a"] == "1" else 1
    along_b = 1 if settings["transpose_b"] == "1" else sizes["ldb"]
    bias = ["bias"] if "bias" in launch.fields else []
    operations: dict[tuple[int, bool], Operation] = {}
    for begin in range(0, sizes["k"], PIECE):
        count, last = min(PIECE, sizes["k"] - begin), begin + PIECE >= sizes["k"]
        if (count, last) not in operations:
            fields, ends = ["a", "b", "c", *(bias if last else []), "out"], {**settings, "beta": "1"} if last else onto
            operations[count, last] = Operation(library, "f32", fields, ends, {**sizes, "k": count}, True)
        reads = [("a", 4 * begin * along_a), ("b", 4 * begin * along_b), ("out", 0)]
        yield _Step(operations[count, last], [*reads, *((field, 0) for field in bias if last), ("out", 0)])


def _in_order(fields: Sequence[str], steps: Sequence[_Step], parts: Sequence[Algorithm]) -> Callable[[Words, int], int]:
    """Returns a function of (words, stream) that runs `parts` one after another and returns the first status that is
    not 0, else 0. `words` are the addresses of the launch's operands and workspace; each part gets the addresses that
    its step reads, followed by the workspace's."""
    workspace = len(fields)
    picked = [[(fields.index(field), offset) for field, offset in step.reads] for step in steps]
    kinds = [ctypes.c_uint64 * (len(read) + 1) for read in picked]

    def attempt(words: Words, stream: int) -> int:
        for read, kind, part in zip(picked, kinds, parts, strict=True):
            own = kind(*(words[index] + offset for index, offset in read), words[workspace])
            status = part.attempt(own, stream)
            if status:
                return status
        return 0

    return attempt


class Operation:
    """The cuBLASLt descriptors of one matrix product of the dtype `of`, such as "f32". `fields` names the operands
    whose addresses a call passes, in this order."""

    def __init__(
        self,
        library: CublasLt,
        of: str,
        fields: Sequence[str],
        settings: Mapping[str, str],
        sizes: Mapping[str, int],
        tf32: bool,
    ) -> None:
        self.library, self.fields = library, fields
        dtype = TYPES[of]
        double = of == "f64"
        scalar = c_double if double else c_float
        self.alpha, self.beta = scalar(float(settings["alpha"])), scalar(float(settings["beta"]))
        compute = COMPUTE_64F if double else COMPUTE_32F_FAST_TF32 if tf32 else COMPUTE_32F
        self.descriptor = c_void_p()
        library.check("cublasLtMatmulDescCreate", byref(self.descriptor), compute, TYPES["f64" if double else "f32"])
        for attribute, key in ((DESC_TRANSA, "transpose_b"), (DESC_TRANSB, "transpose_a")):
            self._set(attribute, c_int32(int(settings[key])))
        self._set(DESC_EPILOGUE, c_uint32(EPILOGUES[settings["epilogue"]]))
        self._bias = self.fields.index("bias") if "bias" in self.fields else None
        if self._bias is not None:
            # The heuristics read the alignment from it.
            self._set(DESC_BIAS_POINTER, c_void_p(ALIGNMENT))
        self._bias_set = 0
        self._lock = threading.Lock()
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        rows_a, columns_a = (k, m) if settings["transpose_a"] == "1" else (m, k)
        rows_b, columns_b = (n, k) if settings["transpose_b"] == "1" else (k, n)
        batch = sizes["batch"]
        self.a = self._layout(dtype, rows_a, columns_a, sizes["lda"], batch, sizes["stride_a"])
        self.b = self._layout(dtype, rows_b, columns_b, sizes["ldb"], batch, sizes["stride_b"])
        self.out = self._layout(dtype, m, n, sizes["ldo"], batch, sizes["stride_o"])
        self.c = self._layout(dtype, m, n, sizes["ldc"], batch, sizes["stride_c"]) if "c" in self.fields else self.out

    def heuristics(self) -> list[HeuristicResult]:
        """Returns the algorithms that the library suggests, best first; empty if it has none."""
        library, preference = self.library, c_void_p()
        library.check("cublasLtMatmulPreferenceCreate", byref(preference))
        values: list[tuple[int, c_uint32 | c_uint64]] = [(PREF_WORKSPACE, c_uint64(MOST_WORKSPACE))]
        values.append((PREF_REDUCTION, c_uint32(REDUCTION_COMPUTE_TYPE)))
        values += [(attribute, c_uint32(ALIGNMENT)) for attribute in PREF_ALIGNMENTS]
        results, count = (HeuristicResult * ALGORITHMS)(), c_int()
        try:
            for attribute, value in values:
                size = ctypes.sizeof(value)
                library.check("cublasLtMatmulPreferenceSetAttribute", preference, attribute, byref(value), size)
            layouts = (self.descriptor, self.b, self.a, self.c, self.out)
            status = library.lib.cublasLtMatmulAlgoGetHeuristic(
                library.handle(), *layouts, preference, ALGORITHMS, byref(results), byref(count)
            )
        finally:
            library.check("cublasLtMatmulPreferenceDestroy", preference)
        return [] if status else [results[index] for index in range(count.value) if not results[index].state]

    def way(self, result: HeuristicResult) -> Algorithm:
        """Returns the product as computed by one suggested algorithm. The address of a bias is part of the descriptor,
        so calls with a bias are made one at a time, under a lock."""
        algorithm = (c_uint64 * 8)(*result.algorithm)
        function, handle, size = self.library.lib.cublasLtMatmul, self.library.handle(), result.workspace
        fields = self.fields
        a, b, out = fields.index("a"), fields.index("b"), fields.index("out")
        c = fields.index("c") if "c" in fields else out
        workspace = len(fields)
        head, alpha, beta = (handle, self.descriptor), byref(self.alpha), byref(self.beta)
        in_a, in_b, in_c, in_out = self.a, self.b, self.c, self.out

        def attempt(words: Words, stream: int) -> int:
            status: int = function(
                *(*head, alpha, words[b], in_b, words[a], in_a, beta, words[c], in_c, words[out], in_out),
                *(algorithm, words[workspace], size, stream),
            )
            return status

        def in_turn(words: Words, stream: int) -> int:
            with self._lock:
                self._point_at_bias(words)
                return attempt(words, stream)

        name = "cublaslt " + "".join(f"{word & 0xFFFFFFFF:08x}" for word in algorithm[:2])
        return Algorithm(name, size, attempt if self._bias is None else in_turn)

    def _point_at_bias(self, words: Words) -> None:
        assert self._bias is not None
        address = words[self._bias]
        if address != self._bias_set:
            self._set(DESC_BIAS_POINTER, c_void_p(address))
            self._bias_set = address

    def _set(self, attribute: int, value: c_int32 | c_uint32 | c_void_p) -> None:
        size = ctypes.sizeof(value)
        self.library.check("cublasLtMatmulDescSetAttribute", self.descriptor, attribute, byref(value), size)

    def _layout(self, dtype: int, rows: int, columns: int, step: int, batch: int, stride: int) -> c_void_p:
        """Returns the descriptor of a batch of row-major matrices: to cuBLASLt each is the column-major matrix that has
        the same bytes. `step` is the distance of rows, `stride` that of matrices, in elements."""
        layout = c_void_p()
        self.library.check("cublasLtMatrixLayoutCreate", byref(layout), dtype, columns, rows, step)
        for attribute, value in ((LAYOUT_BATCH_COUNT, c_int32(batch)), (LAYOUT_BATCH_OFFSET, c_int64(stride))):
            size = ctypes.sizeof(value)
            self.library.check("cublasLtMatrixLayoutSetAttribute", layout, attribute, byref(value), size)
        return layout


def check_spans(launch: BoundLibraryCall) -> None:
    """Raises LibraryError if the sizes of a launch exceed one of its buffers or make no sense."""
    sizes, settings = launch.sizes, launch.settings
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    if min(m, n, batch) < 0 or k < 1 or max(m, n, k, batch) > INT_MAX:
        raise LibraryError(f"{launch.symbol}: sizes {m}×{k}×{n}, {batch} times")
    shapes = {"a": (k, m) if settings["transpose_a"] == "1" else (m, k), "out": (m, n), "c": (m, n)}
    shapes["b"] = (n, k) if settings["transpose_b"] == "1" else (k, n)
    shapes |= {"a_low": shapes["a"], "b_low": shapes["b"]}
    letters = {"a": "a", "b": "b", "c": "c", "out": "o", "a_low": "a", "b_low": "b"}
    for field in launch.fields:
        if field == "bias":
            needed, step, stride = n, n, 0
        else:
            (rows, columns), letter = shapes[field], letters[field]
            step, stride = sizes[f"ld{letter}"], sizes[f"stride_{letter}"]
            needed = max(batch - 1, 0) * stride + max(rows - 1, 0) * step + columns
            if step < columns or stride < 0:
                raise LibraryError(f"{launch.symbol}: {field} has rows of {columns} elements, {step} apart")
            apart = stride >= max(rows - 1, 0) * step + columns or (stride >= columns and step >= batch * stride)
            if field == "out" and batch > 1 and not apart:
                raise LibraryError(f"{launch.symbol}: matrices of out overlap")
        if 0 not in (m, n, batch) and needed > launch.spans[field]:
            raise LibraryError(f"{launch.symbol}: {field} has {launch.spans[field]} elements, the launch uses {needed}")


def load(path: str) -> ctypes.CDLL:
    """Loads cuBLASLt and sets the signatures of its functions. Raises OSError."""
    lib = ctypes.CDLL(path)
    declare(lib, SIGNATURES, CublasLt.status_name)
    lib.cublasLtGetVersion.restype = c_size_t
    return lib


__all__ = ["CublasLt", "HeuristicResult", "load"]
