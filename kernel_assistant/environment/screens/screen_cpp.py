"""The screen for C++ and CUDA text of free-form candidates: refuses constructs that a kernel and its Python binding do
not need. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_assistant.environment.screens.screen import FORBIDDEN

#: Rules of the other screen that do not apply: host code of a free-form candidate may launch and allocate.
_NOT_HERE = ("the CUDA host API", "launches from source: launches belong in the plan")

_HEADER = re.compile(
    r"(?:torch|ATen|c10|pybind11|cooperative_groups|cuda|cub|cutlass|cute|nvtx3|ka)/[\w./]+|[\w]+(?:\.h|\.cuh|\.hpp)?"
)
#: The registry header of a CUDA-Agent workdir.
_REGISTRY = re.compile(r"(?:\.\./)?binding_registry\.h")
_SYSTEM_HEADERS = frozenset(
    """unistd.h fcntl.h dlfcn.h pthread.h thread signal.h csignal future fstream filesystem""".split()
)

#: Functions of at:: and torch:: that allocate or describe.
_PASSIVE = frozenset(
    """empty empty_like empty_strided zeros zeros_like ones full full_like from_blob dtype device TensorOptions Tensor
    IntArrayRef ArrayRef optional nullopt kFloat32 kCUDA kCPU cuda Device DeviceGuard CUDAGuard OptionalDeviceGuard
    getCurrentCUDAStream Scalar ScalarType MemoryFormat Half BFloat16 get_num_threads parallel_for globalContext
    TensorAccessor PackedTensorAccessor32 getCurrentDeviceProperties SymInt List check_dim_size""".split()
)
_CALL = re.compile(r"\b(?:at|torch|c10)::(?:(?:cuda|indexing)::)?(\w+)\s*[(<]")
_COMPUTING = re.compile(
    r"\.\s*(?:matmul|mm|bmm|addmm|softmax|log_softmax|sum|mean|relu_?|sigmoid_?|tanh_?|exp_?|log_?|add_?|sub_?|mul_?|div_?"
    r"|cumsum|cumprod|conv\dd|layer_norm|sqrt_?|rsqrt_?|pow_?|clamp_?|amax|argmax|norm|var|std|masked_fill_?)\s*\("
)
_NAMESPACES = re.compile(
    r"\bat::(?:native|cpu|meta|redispatch|_ops|impl|cuda::blas|cuda::solver)\b|\bDispatchKey\w*Guard\b|\bAutoDispatch\w+"
    r"|\btorch::(?:nn|jit|dynamo|autograd|load|save|serialize|python|utils)\b|\busing\s+namespace\s+(?:at|torch|c10)\b"
    r"|\bc10::(?:Dispatcher|impl)\b|\bPyRun_|\bPyImport_|\bpy::(?:module_?::import|eval|exec|globals)\b"
)


def cpp_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, message) for everything in `text` that is not allowed."""
    joined = text.replace("\\\r\n", "").replace("\\\n", "")
    if "??/" in joined:
        yield 1, "trigraphs are not allowed"
    for number, line in enumerate(joined.splitlines(), 1):
        for message in _line_problems(line):
            yield number, message


def _line_problems(line: str) -> Iterator[str]:
    include = re.match(r"\s*(?:#|%:)\s*include\s*(.*)", line)
    if include:
        header = re.match(r"[<\"]([^>\"]+)[>\"]", include[1].strip())
        known = header is not None and (_HEADER.fullmatch(header[1]) or _REGISTRY.fullmatch(header[1]))
        if header is None or not known or header[1] in _SYSTEM_HEADERS:
            yield f"include {include[1].strip()} is not allowed"
        return
    if line.lstrip().startswith("//") and "*/" not in line:
        return
    for pattern, reason in FORBIDDEN:
        if reason not in _NOT_HERE and re.search(pattern, line):
            yield f"not allowed: {reason}"
    for name in _CALL.findall(line):
        if name not in _PASSIVE and name[0].islower():
            yield f"not allowed: PyTorch computes in C++ ({name})"
    if _NAMESPACES.search(line):
        yield "not allowed: ways into PyTorch around its dispatcher"
    if _COMPUTING.search(line):
        yield f"not allowed: PyTorch computes in C++ ({_COMPUTING.search(line)[0].strip(' .(')})"  # type: ignore[index]
    if re.search(
        r"\bcuda(?:StreamCreate|LaunchHostFunc|StreamAddCallback|DeviceReset|IpcGet|IpcOpen)\w*|\bcuCtx\w+", line
    ):
        yield "not allowed: streams, callbacks and contexts of its own"
