"""Library launches without a device: records, binding, checks of sizes, and descriptors of the real libraries."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.records import BufferSpec, Launch, Plan
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.worker.runner import libraries
from kernel_assistant.worker.runner import plan as plans
from kernel_assistant.worker.runner.operations import choosing, cublaslt, cudnn, cudnn_graph, cudnn_library
from kernel_assistant.worker.runner.operations.choosing import Algorithm
from kernel_assistant.worker.runner.operations.convolution import read_shape, strides

MATMUL = Launch(
    symbol="product",
    library="cublaslt.matmul",
    args=(
        *(("a", "x0"), ("b", "p0"), ("bias", "p1"), ("out", "out0"), ("m", "B"), ("n", "48"), ("k", "32")),
        *(("batch", "1"), ("lda", "32"), ("ldb", "32"), ("ldo", "48")),
        *(("stride_a", "0"), ("stride_b", "0"), ("stride_o", "0")),
    ),
    settings=(
        *(("transpose_a", "0"), ("transpose_b", "1"), ("alpha", "1.0"), ("beta", "0.0")),
        *(("epilogue", "bias_relu"), ("compute", "flags")),
    ),
)
CONV = Launch(
    symbol="picture",
    library="cudnn.conv",
    args=(
        *(("x", "x0"), ("w", "p0"), ("bias", "p1"), ("out", "out0"), ("n", "B"), ("c", "8"), ("k", "16")),
        *(("i0", "9"), ("i1", "11"), ("f0", "3"), ("f1", "3"), ("o0", "5"), ("o1", "6")),
    ),
    settings=(
        *(("stride", "2,2"), ("padding", "1,1"), ("dilation", "1,1"), ("groups", "2")),
        *(("layout", "nhwc"), ("given", "nhwc"), ("epilogue", "bias_relu"), ("compute", "f32")),
    ),
)
FLAGS = {"cublaslt": False, "cudnn": True, "deterministic": False}
BUFFERS = {
    "cublaslt.matmul": {"x0": ("B", "32"), "p0": ("48", "32"), "p1": ("48",), "out0": ("B", "48")},
    "cudnn.conv": {
        "x0": ("B", "8", "9", "11"),
        "p0": ("16", "4", "3", "3"),
        "p1": ("16",),
        "out0": ("B", "16", "5", "6"),
    },
}


def plan_of(launch: Launch, dtype: str = "bf16", target: str = "cuda", **fields: Any) -> Plan:
    specs = [BufferSpec(name=name, dtype=dtype, shape=shape) for name, shape in BUFFERS[launch.library].items()]
    given = {"inputs": tuple(specs[:-1]), "outputs": (specs[-1],), "launches": (launch,), **fields}
    return Plan(target=target, dims=("B",), **given)


def changed(launch: Launch, **pairs: str) -> Launch:
    """The launch with other values of some fields and settings."""
    args = tuple((field, pairs.get(field, value)) for field, value in launch.args)
    settings = tuple((field, pairs.get(field, value)) for field, value in launch.settings)
    return msgspec.structs.replace(launch, args=args, settings=settings)


def bound(launch: Launch, rows: int = 6, dtype: str = "bf16") -> plans.BoundLibraryCall:
    (found,) = plans.bind_launches(to_builtins(plan_of(launch, dtype)), {"B": rows})
    assert isinstance(found, plans.BoundLibraryCall)
    return found


def test_a_library_launch_has_no_struct() -> None:
    assert "typedef" not in plan_header(plan_of(MATMUL))


def test_binding_gives_pointers_in_order_and_sizes() -> None:
    found = bound(MATMUL)
    assert found.fields == ["a", "b", "bias", "out"]
    assert found.slots == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert (found.sizes["m"], found.spans["a"], found.dtype) == (6, 192, "bf16")
    assert found.key == bound(changed(MATMUL)).key
    assert found.key != bound(MATMUL, 7).key


REFUSED: dict[str, tuple[Launch, dict[str, str]]] = {
    "epilogue that is not there": (MATMUL, {"epilogue": "silu"}),
    "compute type that is not there": (MATMUL, {"compute": "bf16"}),
    "split operands of a convolution": (CONV, {"compute": "split"}),
    "split operands without their rests": (MATMUL, {"compute": "split"}),
    "bias without an epilogue for it": (MATMUL, {"epilogue": "relu"}),
    "beta without what is added": (MATMUL, {"beta": "1.0"}),
    "alpha that is no number": (MATMUL, {"alpha": "one"}),
    "gelu of a convolution": (CONV, {"epilogue": "bias_gelu"}),
    "silu without a bias": (CONV, {"epilogue": "silu"}),
    "residual that is not there": (CONV, {"epilogue": "bias_add_relu"}),
    "stride of other dimensions": (CONV, {"stride": "2"}),
    "stride of zero": (CONV, {"stride": "0,1"}),
    "groups that are no number": (CONV, {"groups": "B"}),
    "layout": (CONV, {"layout": "chwn"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_are_a_closed_list(name: str) -> None:
    launch, pairs = REFUSED[name]
    with pytest.raises(ValueError, match=r"cublaslt|cudnn"):
        changed(launch, **pairs)


def test_operations_are_a_closed_list() -> None:
    with pytest.raises(ValueError, match="nothing is fused"):
        msgspec.structs.replace(CONV, library="cudnn.conv_transpose")
    with pytest.raises(ValueError, match="unknown library operation"):
        Launch(symbol="f", library="cublas.gemm", args=())
    with pytest.raises(ValueError, match="settings belong to library launches"):
        Launch(symbol="f", args=(), settings=(("compute", "f32"),))
    with pytest.raises(ValueError, match="no grid"):
        msgspec.structs.replace(MATMUL, grid=("2", "1", "1"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"target": "cpu"}, "for CUDA"),
        ({"prepare": (MATMUL,)}, "prepare takes kernels only"),
        ({"dtype": "i32"}, "one floating dtype"),
        ({"launches": (changed(MATMUL, out="x0"),)}, "must be an output"),
        ({"launches": (changed(MATMUL, m="x0"),)}, "integer expressions"),
        ({"launches": (changed(MATMUL, b="B"),)}, "one floating dtype"),
        ({"launches": (changed(MATMUL, bias="out0"),)}, "must not be read"),
    ],
)
def test_a_plan_refuses_what_the_library_cannot_be_asked(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plan_of(MATMUL, **fields)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ({"m": "B + 1"}, "the launch uses"),
        ({"k": "33"}, "elements apart|32 apart"),
        ({"ldo": "47"}, "47 apart"),
        ({"batch": "2", "stride_o": "48*B"}, "out has"),
        ({"k": "0"}, "sizes"),
        ({"batch": "2147483648"}, "2147483648 times"),
        ({"m": "3", "batch": "2"}, "overlap"),
        ({"stride_a": "-1", "batch": "2"}, "a has"),
    ],
)
def test_products_beyond_their_buffers_are_refused(pairs: dict[str, str], reason: str) -> None:
    with pytest.raises(libraries.LibraryError, match=reason):
        cublaslt.check_spans(bound(changed(MATMUL, **pairs)))
    cublaslt.check_spans(bound(MATMUL))


def test_matrices_of_a_batch_may_lie_between_each_others_rows() -> None:
    cublaslt.check_spans(bound(changed(MATMUL, m="3", batch="2", ldo="96", stride_o="48")))


@pytest.mark.parametrize("pairs", [{"o0": "6"}, {"c": "9"}, {"k": "32"}, {"n": "B + 1"}, {"groups": "3"}, {"f0": "5"}])
def test_convolutions_beyond_their_buffers_are_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(libraries.LibraryError):
        read_shape(bound(changed(CONV, **pairs)))


def test_one_dimension_is_run_as_two() -> None:
    launch = Launch(
        symbol="line",
        library="cudnn.conv_transpose",
        args=(*(("x", "x0"), ("w", "p0"), ("out", "out0"), ("n", "3"), ("c", "8"), ("k", "4")), *_line(21, 4, 44)),
        settings=(
            *(("stride", "2"), ("padding", "0"), ("dilation", "1"), ("groups", "2")),
            *(("layout", "nchw"), ("given", "nchw"), ("epilogue", "none"), ("compute", "f32")),
        ),
    )
    specs = {"x0": ("3", "8", "21"), "p0": ("8", "2", "4"), "out0": ("3", "4", "44")}
    buffers = [BufferSpec(name=name, dtype="f32", shape=shape) for name, shape in specs.items()]
    plan = Plan(target="cuda", dims=(), inputs=tuple(buffers[:2]), outputs=(buffers[2],), launches=(launch,))
    (found,) = plans.bind_launches(to_builtins(plan), {})
    assert isinstance(found, plans.BoundLibraryCall)
    shape = read_shape(found)
    assert (shape.x, shape.w, shape.out) == ((3, 8, 1, 21), (8, 2, 1, 4), (3, 4, 1, 44))
    assert (shape.stride, shape.padding, shape.groups) == ((1, 2), (0, 0), 2)


def _line(inner: int, kernel: int, outer: int) -> tuple[tuple[str, str], ...]:
    return (("i0", str(inner)), ("f0", str(kernel)), ("o0", str(outer)))


def test_strides_of_both_layouts() -> None:
    assert strides((2, 8, 9, 11), channels_last=False) == (792, 99, 11, 1)
    assert strides((2, 8, 9, 11), channels_last=True) == (792, 1, 88, 8)


def test_libraries_are_found_beside_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("cu13/lib/libcublasLt.so.13", "cudnn/lib/libcudnn.so.9", "cudnn/lib/libcudnn_cnn.so.9")
    for name in names:
        path = tmp_path / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = libraries.find_libraries()
    assert found == {
        "cublaslt": str(tmp_path / "nvidia" / names[0]),
        "cudnn": str(tmp_path / "nvidia" / names[1]),
    }
    assert libraries.library_folders() == sorted(str(Path(path).parent) for path in found.values())


def test_a_missing_library_is_named() -> None:
    none: Any = None
    with pytest.raises(libraries.LibraryMissing, match="install nvidia-cublas"):
        libraries.Libraries(none, {}, FLAGS).bind(bound(MATMUL))
    with pytest.raises(libraries.LibraryMissing, match="cannot be loaded"):
        libraries.Libraries(none, {"cudnn": "/nowhere/libcudnn.so.9"}, FLAGS).bind(bound(CONV))


def _file(name: str) -> dict[str, str]:
    paths = libraries.find_libraries()
    if name not in paths:
        pytest.skip(f"needs {name}, which a PyTorch for CUDA brings")
    return paths


def _operation(library: cublaslt.CublasLt, launch: plans.BoundLibraryCall, tf32: bool) -> cublaslt.Operation:
    return cublaslt.Operation(library, launch.dtype, launch.fields, launch.settings, launch.sizes, tf32)


def test_matrix_layouts_as_the_library_reads_them() -> None:
    """Row-major x0[6, 32] · p0[48, 32]ᵀ is, in column-major order, p0 as 32 × 48, transposed, times x0 as 32 × 6."""
    library = cublaslt.CublasLt(_file("cublaslt"))
    assert library.lib.cublasLtGetVersion() > 0
    operation = _operation(library, bound(MATMUL), tf32=False)

    def attributes(layout: c_void_p) -> list[int]:
        found = []
        for attribute, size in ((0, 4), (2, 8), (3, 8), (4, 8), (5, 4), (6, 8)):
            value, written = c_uint64(), c_size_t()
            read = library.lib.cublasLtMatrixLayoutGetAttribute
            assert read(layout, c_int(attribute), byref(value), c_size_t(size), byref(written)) == 0
            found.append(value.value)
        return found

    assert attributes(operation.b) == [14, 32, 48, 32, 1, 0]
    assert attributes(operation.a) == [14, 32, 6, 32, 1, 0]
    assert attributes(operation.out) == [14, 48, 6, 48, 1, 0]


@pytest.mark.parametrize(("dtype", "tf32", "compute"), [("f32", False, 68), ("f32", True, 77), ("f64", False, 70)])
def test_compute_types_as_the_library_reads_them(dtype: str, tf32: bool, compute: int) -> None:
    library = cublaslt.CublasLt(_file("cublaslt"))
    operation = _operation(library, bound(MATMUL, dtype=dtype), tf32)
    for attribute, wanted in ((0, compute), (3, 1), (4, 0), (7, 6)):
        value, written = c_int(), c_size_t()
        read = library.lib.cublasLtMatmulDescGetAttribute
        assert read(operation.descriptor, c_int(attribute), byref(value), c_size_t(4), byref(written)) == 0
        assert value.value == wanted


def test_result_structs_have_the_size_of_the_headers() -> None:
    assert ctypes.sizeof(cublaslt.HeuristicResult) == 96
    assert ctypes.sizeof(cudnn.AlgorithmPerformance) == 48


def test_the_library_agrees_on_the_output_of_a_convolution() -> None:
    library = cudnn_library.Cudnn(_file("cudnn"))
    assert library.lib.cudnnGetVersion() > 8000
    launch = bound(CONV)
    made = cudnn.CudnnConvolution(library, launch, read_shape(launch), tf32=False)
    sizes = (c_int * 4)()
    ask = library.lib.cudnnGetConvolutionNdForwardOutputDim
    ask.argtypes = [c_void_p, c_void_p, c_void_p, c_int, c_void_p]
    assert ask(made.convolution, made.x, made.w, 4, sizes) == 0
    assert list(sizes) == [6, 16, 5, 6]


@pytest.mark.parametrize(
    ("milliseconds", "chosen"),
    [
        ((5.0, 4.0, 3.9), 1),  # a little faster, but not the same bits each time
        ((25.0, 34.0, 2.4, 2.3), 3),
        ((25.0, 34.0, 2.4, 2.39), 2),
        ((math.inf, math.inf, 2.4), 2),
        ((math.inf, math.inf, math.inf), None),
    ],
)
def test_other_bits_each_time_have_to_be_worth_it(
    monkeypatch: pytest.MonkeyPatch, milliseconds: tuple[float, ...], chosen: int | None
) -> None:
    """The first two algorithms are reproducible."""
    ways = [Algorithm(str(at), 0, lambda words, stream: 0, at < 2) for at in range(len(milliseconds))]
    monkeypatch.setattr(choosing, "_time", lambda driver, events, way, words, most: milliseconds[int(way.name)])
    nothing: Any = None
    found = choosing._fastest(nothing, nothing, ways, nothing)
    assert found == (None if chosen is None else ways[chosen])


@pytest.mark.parametrize("status", [0, 3])
def test_a_single_algorithm_is_run_and_not_timed(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    ran: list[str] = []
    driver: Any = SimpleNamespace(synchronize=lambda: ran.append("waited for"))
    way = Algorithm("only", 0, lambda words, stream: ran.append("run") or status)
    nothing: Any = None
    monkeypatch.delattr(choosing, "_time")
    assert choosing._fastest(driver, nothing, [way], nothing) == (None if status else way)
    assert ran == ["run", "waited for"]


class _Descriptors:
    """Stands for cuDNN where only descriptors of addresses are made, and says which were alive at each execution."""

    def __init__(self) -> None:
        self.alive: dict[int, list[int]] = {}
        self.executed: list[list[int]] = []
        self.made = 0
        self.lock = threading.Lock()
        self.lib = SimpleNamespace(
            cudnnSetStream=lambda handle, stream: 0,
            cudnnBackendCreateDescriptor=self.create,
            cudnnBackendSetAttribute=self.set_attribute,
            cudnnBackendFinalize=lambda pack: 0,
            cudnnBackendDestroyDescriptor=self.destroy,
            cudnnBackendExecute=self.execute,
        )

    def handle(self) -> c_void_p:
        return c_void_p()

    def create(self, kind: int, made: Any) -> int:
        self.made += 1
        made._obj.value = self.made
        self.alive[self.made] = []
        return 0

    def set_attribute(self, pack: c_void_p, name: int, kind: int, count: int, values: Any) -> int:
        if name != 1000:
            found = values._obj
            self.alive[pack.value or 0] += [found.value] if count == 1 else list(found)
        return 0

    def destroy(self, pack: c_void_p) -> int:
        del self.alive[pack.value or 0]
        return 0

    def execute(self, handle: c_void_p, plan: c_void_p, pack: c_void_p) -> int:
        self.executed.append(self.alive[pack.value or 0])
        return 0


def test_each_call_of_a_convolution_has_its_own_addresses() -> None:
    """Words are the fields' addresses, then the workspace's; descriptors of earlier addresses are used again."""
    library: Any = _Descriptors()
    made = cudnn_graph._Graph.__new__(cudnn_graph._Graph)
    made.library, made.launch, made.fields = library, bound(CONV), ["x", "w", "bias", "out"]
    run = made._attempt(c_void_p())
    most = cudnn_graph.MOST_PACKS
    calls = [[100 + at % 3, 200, 300, 400, 500] for at in range(9)]
    calls += [[1000 + at, 200, 300, 400, 500 + at] for at in range(2 * most)]
    for words in (*calls, calls[0]):
        assert run((c_uint64 * 5)(*words), 7) == 0
    assert library.executed == [*calls, calls[0]]
    assert library.made == 3 + 2 * most + 1
    assert len(library.alive) == most
