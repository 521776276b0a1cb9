"""Computes convolutions by cuDNN, through ctypes: with algorithms of the graph interface (`cudnn_graph.py`) and of the
older interface, which this file calls. Standard library only.

Numbers are those of cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h (cuDNN 8 and 9). A convolution over one spatial
dimension is run as one over two. A transposed convolution is the gradient of a convolution for its data: `x` is cuDNN's
dy, `out` its dx."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_void_p

from ..plan import BoundLibraryCall
from .choosing import Algorithm, Wanted, Words
from .convolution import ConvolutionShape, read_shape
from .cudnn_graph import graph_ways, takes_tensor_cores
from .cudnn_library import CROSS_CORRELATION, TYPES, Cudnn

DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
NCHW, NHWC = 0, 1
ACTIVATION_RELU, ACTIVATION_IDENTITY, PROPAGATE_NAN = 1, 5, 1
#: Activations that a pass of its own computes, by the end of the epilogue's name. SiLU is cuDNN's swish.
ACTIVATIONS = {"relu": ACTIVATION_RELU, "silu": 6}
#: The only algorithm that takes a bias without ReLU.
PRECOMPUTED_GEMM = 1
#: Algorithms by Fourier transforms, whose error in fp32 is well above PyTorch's.
FOURIER = {False: (4, 5), True: (2, 3)}
ALGORITHMS = 8
MOST_WORKSPACE = 512 << 20

Step = Callable[[Words], int]


class AlgorithmPerformance(ctypes.Structure):
    """The C structures cudnnConvolutionFwdAlgoPerf_t and cudnnConvolutionBwdDataAlgoPerf_t."""

    _fields_ = [
        ("algorithm", c_int),
        ("status", c_int),
        ("time", c_float),
        ("memory", c_size_t),
        ("deterministic", c_int),
        ("math", c_int),
        ("reserved", c_int * 3),
    ]


class CudnnConvolutions:
    """Lists the algorithms of cuDNN for convolutions on one device."""

    def __init__(self, paths: dict[str, str]) -> None:
        self.library = Cudnn(paths)

    def name_of(self, status: int) -> str:
        return self.library.name_of(status)

    def version(self) -> str:
        return f"cudnn {self.library.lib.cudnnGetVersion()}"

    def ways(self, launch: BoundLibraryCall, tf32: bool, deterministic: bool, wanted: Wanted) -> list[Algorithm]:
        """Returns algorithms for a launch: engines of the graph interface with a fused epilogue, such engines with
        separate calls for the epilogue, then algorithms of the older interface. Irreproducible ones come last; with
        `deterministic` they are left out, unless there are no others.

        Where there are engines with a fused epilogue, separate calls are never faster: one engine is enough for them.
        The older interface is tried last, and not at all if `wanted` asks for one plan and a reproducible one was
        found."""
        shape = read_shape(launch)
        if shape.is_empty:
            return [Algorithm("nothing", 0, lambda words, stream: 0)]
        if wanted.name:
            tf32 = tf32 and wanted.name.endswith(" tf32")
        elif tf32 and launch.settings["compute"] == "flags":
            given = shape._replace(channels_last=launch.settings["given"] == "nhwc")
            tf32 = takes_tensor_cores(self.library, launch, given)
        older = CudnnConvolution(self.library, launch, shape, tf32)
        epilogue = launch.settings["epilogue"] != "none"
        fused = graph_ways(self.library, launch, shape, tf32, True, deterministic, wanted) if epilogue else []
        plain: list[Algorithm] = []
        if not fused or wanted.plans > 1:
            fewer = wanted._replace(plans=1) if fused else wanted
            plain = graph_ways(self.library, launch, shape, tf32, False, deterministic, fewer)
        algorithms = [*fused, *(older.finished(way) for way in plain)]
        if wanted.plans > 1 or not any(way.reproducible for way in algorithms):
            algorithms += older.ways()
        ordered = sorted(algorithms, key=lambda way: not way.reproducible)
        # Where cuDNN has none that is reproducible, PyTorch uses another, too.
        return [way for way in ordered if way.reproducible or not deterministic] or ordered


class CudnnConvolution:
    """The cuDNN descriptors of one convolution, and its algorithms in the older interface."""

    def __init__(self, library: Cudnn, launch: BoundLibraryCall, shape: ConvolutionShape, tf32: bool) -> None:
        self.library, self.fields, self.shape = library, launch.fields, shape
        self.transposed = launch.library == "cudnn.conv_transpose"
        mode = ACTIVATIONS.get(launch.settings["epilogue"].rpartition("_")[2])
        double, half = launch.dtype == "f64", launch.dtype in ("f16", "bf16")
        self.suffix = " tf32" if tf32 else ""
        # Unless TF32 is allowed, f32 uses FMA only; half types and doubles use what the algorithm does.
        self.math = FMA_MATH if launch.dtype == "f32" and not tf32 else None
        scalar = c_double if double else c_float
        self.one, self.zero = scalar(1.0), scalar(0.0)
        dtype = TYPES[launch.dtype]
        self.x = self._tensor(dtype, shape.x, shape.x_strides)
        self.out = self._tensor(dtype, shape.out, shape.out_strides)
        self.bias = self._tensor(dtype, shape.bias, shape.bias_strides) if "bias" in self.fields else None
        self.w = library.descriptor("Filter")
        layout = NHWC if shape.channels_last else NCHW
        library.check("cudnnSetFilterNdDescriptor", self.w, dtype, layout, len(shape.w), _ints(shape.w))
        self.convolution = library.descriptor("Convolution")
        library.check(
            "cudnnSetConvolutionNdDescriptor",
            *(self.convolution, len(shape.stride), _ints(shape.padding), _ints(shape.stride), _ints(shape.dilation)),
            *(CROSS_CORRELATION, TYPES["f64" if double else "f32"]),
        )
        library.check("cudnnSetConvolutionGroupCount", self.convolution, shape.groups)
        self._set_math(FMA_MATH if self.math is not None else TENSOR_OP_MATH if half else DEFAULT_MATH)
        self.activation = None if mode is None else self._activation(mode)
        # cuDNN fuses ReLU or nothing behind a bias.
        self.fused = self._activation(mode or ACTIVATION_IDENTITY) if mode in (None, ACTIVATION_RELU) else None

    def ways(self) -> list[Algorithm]:
        algorithms = []
        for result in self._algorithms():
            math = result.math if self.math is None else self.math
            self._set_math(math)
            workspace = self._workspace(result.algorithm)
            if workspace is None or workspace > MOST_WORKSPACE:
                continue
            reproducible = bool(result.deterministic)
            kind, name = "transposed" if self.transposed else "forward", f"{result.algorithm} math {math}{self.suffix}"
            if self._fuses(result.algorithm):
                steps = [self._fused(result.algorithm, workspace)]
                algorithms.append(
                    Algorithm(f"cudnn {kind} fused {name}", workspace, self._attempt(math, steps), reproducible)
                )
            steps = [self._plain(result.algorithm, workspace), *self._epilogue()]
            algorithms.append(Algorithm(f"cudnn {kind} {name}", workspace, self._attempt(math, steps), reproducible))
        return algorithms

    def _fuses(self, algorithm: int) -> bool:
        """Whether one cuDNN call with this algorithm can do the whole epilogue (adding z and the bias, and the
        activation)."""
        with_relu = self.activation is not None
        return self.bias is not None and self.fused is not None and (with_relu or algorithm == PRECOMPUTED_GEMM)

    def finished(self, way: Algorithm) -> Algorithm:
        """Returns the algorithm `way`, which only convolves, followed by separate calls that add z and the bias and
        apply the activation, as far as the launch has them."""
        steps = self._epilogue()
        if not steps:
            return way
        rest = self._attempt(DEFAULT_MATH, steps)
        return way._replace(attempt=lambda words, stream: way.attempt(words, stream) or rest(words, stream))

    def _epilogue(self) -> list[Step]:
        steps = [self._add(field) for field in ("z", "bias") if field in self.fields]
        return [*steps, *([self._activate(self.activation)] if self.activation else [])]

    def _attempt(self, math: int, steps: list[Step]) -> Callable[[Words, int], int]:
        lock, lib, handle = self.library.lock, self.library.lib, self.library.handle()
        set_stream, set_math, convolution = lib.cudnnSetStream, lib.cudnnSetConvolutionMathType, self.convolution

        def attempt(words: Words, stream: int) -> int:
            with lock:
                status: int = set_stream(handle, stream) or set_math(convolution, math)
                for step in steps:
                    status = status or step(words)
            return status

        return attempt

    def _plain(self, algorithm: int, workspace: int) -> Step:
        lib, handle = self.library.lib, self.library.handle()
        x, w, out, scratch = self._positions()
        alpha, beta = byref(self.one), byref(self.zero)
        in_x, in_w, in_out, convolution = self.x, self.w, self.out, self.convolution
        if self.transposed:
            backward = lib.cudnnConvolutionBackwardData

            def transposed(words: Words) -> int:
                operands = (alpha, in_w, words[w], in_x, words[x], convolution, algorithm, words[scratch], workspace)
                return int(backward(handle, *operands, beta, in_out, words[out]))

            return transposed
        function = lib.cudnnConvolutionForward

        def forward(words: Words) -> int:
            operands = (alpha, in_x, words[x], in_w, words[w], convolution, algorithm, words[scratch], workspace)
            return int(function(handle, *operands, beta, in_out, words[out]))

        return forward

    def _fused(self, algorithm: int, workspace: int) -> Step:
        function, handle = self.library.lib.cudnnConvolutionBiasActivationForward, self.library.handle()
        x, w, out, scratch = self._positions()
        bias, in_bias = self.fields.index("bias"), self.bias
        one, zero = byref(self.one), byref(self.zero)
        # Added to the result: z, or nothing of it.
        z, factor = (self.fields.index("z"), one) if "z" in self.fields else (out, zero)
        in_x, in_w, in_out, convolution = self.x, self.w, self.out, self.convolution
        activation = self.fused

        def fused(words: Words) -> int:
            operands = (one, in_x, words[x], in_w, words[w], convolution, algorithm, words[scratch], workspace)
            added = (factor, in_out, words[z], in_bias, words[bias])
            return int(function(handle, *operands, *added, activation, in_out, words[out]))

        return fused

    def _add(self, field: str) -> Step:
        function, handle = self.library.lib.cudnnAddTensor, self.library.handle()
        added, out, in_out = self.fields.index(field), self.fields.index("out"), self.out
        in_added, one = self.bias if field == "bias" else self.out, byref(self.one)
        return lambda words: int(function(handle, one, in_added, words[added], one, in_out, words[out]))

    def _activate(self, activation: c_void_p) -> Step:
        function, handle = self.library.lib.cudnnActivationForward, self.library.handle()
        out, in_out = self.fields.index("out"), self.out
        one, zero = byref(self.one), byref(self.zero)
        return lambda words: int(function(handle, activation, one, in_out, words[out], zero, in_out, words[out]))

    def _positions(self) -> tuple[int, int, int, int]:
        return self.fields.index("x"), self.fields.index("w"), self.fields.index("out"), len(self.fields)

    def _algorithms(self) -> list[AlgorithmPerformance]:
        """Returns the algorithms that cuDNN's heuristics name, best first: the deterministic ones, or all if none is
        deterministic. Others are not needed beside deterministic ones, because the graph interface has faster ones."""
        results, count = (AlgorithmPerformance * ALGORITHMS)(), c_int()
        which = "BackwardData" if self.transposed else "Forward"
        query = f"cudnnGetConvolution{which}Algorithm_v7"
        self.library.check(query, self.library.handle(), *self._described(), ALGORITHMS, byref(count), byref(results))
        usable = [
            results[index]
            for index in range(count.value)
            if not results[index].status and results[index].algorithm not in FOURIER[self.transposed]
        ]
        return [one for one in usable if one.deterministic] or usable

    def _workspace(self, algorithm: int) -> int | None:
        which, size = "BackwardData" if self.transposed else "Forward", c_size_t()
        function = getattr(self.library.lib, f"cudnnGetConvolution{which}WorkspaceSize")
        status = function(self.library.handle(), *self._described(), algorithm, byref(size))
        return None if status else size.value

    def _described(self) -> tuple[c_void_p, c_void_p, c_void_p, c_void_p]:
        """Returns the descriptors of input, filter, convolution and result, in the order in which cuDNN's functions
        take them."""
        if self.transposed:
            return self.w, self.x, self.convolution, self.out
        return self.x, self.w, self.convolution, self.out

    def _set_math(self, math: int) -> None:
        self.library.check("cudnnSetConvolutionMathType", self.convolution, math)

    def _tensor(self, dtype: int, sizes: Sequence[int], strides: Sequence[int]) -> c_void_p:
        made = self.library.descriptor("Tensor")
        self.library.check("cudnnSetTensorNdDescriptor", made, dtype, len(sizes), _ints(sizes), _ints(strides))
        return made

    def _activation(self, mode: int) -> c_void_p:
        made = self.library.descriptor("Activation")
        self.library.check("cudnnSetActivationDescriptor", made, mode, PROPAGATE_NAN, 0.0)
        return made


def _ints(values: Sequence[int]) -> ctypes.Array[c_int]:
    return (c_int * len(values))(*values)
