"""Writes a candidate as C++ that needs neither plan nor runner: its sources in one text, a launcher in C, a torch
binding.

    extern "C" void NAME_launch(void* const* buffers, const int64_t* sizes[, int config, cudaStream_t stream]);

`buffers` are the plan's inputs, outputs, scratch and packed buffers in this order, `sizes` its dimensions.
"""

from __future__ import annotations

import ast
import re

from kernel_assistant.apply.result import VerifiedResult
from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.errors import UsageError
from kernel_assistant.records import BufferSpec, Candidate, Launch, Plan, TensorSpec
from kernel_assistant.records.graph import DTYPE_BYTES

_SCALAR = {
    "f64": "kFloat64",
    "f32": "kFloat32",
    "bf16": "kBFloat16",
    "f16": "kFloat16",
    "i64": "kInt64",
    "i32": "kInt32",
    "i16": "kInt16",
    "i8": "kInt8",
    "u8": "kUInt8",
    "b1": "kBool",
}
_INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


class NotSelfContained(UsageError):
    """Raised if a plan needs more than its own kernels and a binding: libraries, PyTorch's operators or strided
    buffers. It can only be exported as a package."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause, "export it with --to package")


def check_exportable(result: VerifiedResult) -> None:
    """Raises NotSelfContained for a plan with library launches or residual calls."""
    launches = (*result.plan.prepare, *result.plan.launches)
    if any(getattr(launch, "library", None) for launch in launches):
        raise NotSelfContained("the candidate calls libraries, which only the runner can")
    if result.plan.residual:
        raise NotSelfContained("the candidate leaves calls to PyTorch in place")


def kernel_text(candidate: Candidate) -> str:
    """Returns all sources as one text: the files to compile, sorted by name, with the candidate's own headers inserted
    at their first `#include`."""
    suffix = ".cu" if candidate.plan.target == "cuda" else ".cpp"
    files = {**candidate.sources, "plan.h": plan_header(candidate.plan)}
    seen: set[str] = set()

    def expand(name: str) -> list[str]:
        if name in seen:
            return []
        seen.add(name)
        lines: list[str] = []
        for line in files[name].splitlines():
            match = _INCLUDE.match(line)
            if match and match[1] in files:
                lines += expand(match[1])
            elif not re.match(r"\s*#\s*pragma\s+once", line):
                lines.append(line)
        return lines

    units = sorted(name for name in files if name.endswith(suffix))
    return "\n".join(line for name in units for line in expand(name)) + "\n"


def uses_clusters(candidate: Candidate) -> bool:
    return any("__cluster_dims__" in text for text in candidate.sources.values())


def declaration(name: str, target: str) -> str:
    """Returns the C declaration of the launcher (the function that runs all kernels of a plan), without a semicolon."""
    tail = ", int config, cudaStream_t stream" if target == "cuda" else ""
    return f'extern "C" void {name}_launch(void* const* buffers, const int64_t* sizes{tail})'


def launcher_text(plan: Plan, name: str, *, clusters: bool = False) -> str:
    """Returns the C code of the launcher, a function that reads the sizes and runs all launches of the plan, first
    those that pack parameters.

    `clusters` says whether kernels may run in thread block clusters larger than the portable size.
    """
    index = {spec.name: position for position, spec in enumerate(plan.buffers)}
    lines = [declaration(name, plan.target) + " {"]
    lines += [f"  const int64_t d_{dim} = sizes[{position}];" for position, dim in enumerate(plan.dims)]
    for launch in (*plan.prepare, *plan.launches):
        lines += ["  {", *(f"    {line}" for line in _launch(launch, index, plan.target, clusters)), "  }"]
    unused = ["config"] if plan.target == "cuda" else []
    return "\n".join([*lines, *(f"  (void){one};" for one in [*unused, "sizes"]), "}"]) + "\n"


def _launch(launch: Launch, index: dict[str, int], target: str, clusters: bool) -> list[str]:
    kind = f"{launch.symbol}_args"
    fields = [
        f"static_cast<decltype({kind}::{field})>(buffers[{index[value]}])" if value in index else to_cpp(value)
        for field, value in launch.args
    ]
    lines = [f"const {kind} a = {{{', '.join(fields)}}};"]
    if target == "cpu":
        return [*lines, f"{launch.symbol}(&a);"]
    grid, block = (", ".join(f"(unsigned)({to_cpp(size)})" for size in sizes) for sizes in (launch.grid, launch.block))
    empty = " || ".join(f"({to_cpp(size)}) == 0" for size in launch.grid)
    lines.append(f"const int64_t shared = {to_cpp(launch.shared)};")
    if launch.shared != "0":
        # Always: what the kernel declares itself counts, too (CUDA C++ Programming Guide, 16.7).
        lines.append(
            f"cudaFuncSetAttribute({launch.symbol}, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);"
        )
    if clusters:
        lines.append(f"cudaFuncSetAttribute({launch.symbol}, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);")
    return [
        *lines,
        f"if (!({empty})) {launch.symbol}<<<dim3({grid}), dim3({block}), (size_t)shared, stream>>>(a);",
    ]


def binding_text(result: VerifiedResult, name: str) -> str:
    """Returns the C++ function `NAME_forward`: it checks its tensors, allocates outputs and scratch, and calls the
    launcher.

    The function takes the plan's inputs in order, and returns a tensor, or a vector of tensors if there are several
    outputs. Raises NotSelfContained if a size is not the length of one axis of an input, or a buffer is strided.
    """
    plan, graph = result.plan, result.graph
    specs = {value.name: value.spec for value in graph.inputs}
    inputs = [(f"t_{spec.name}", specs[spec.name]) for spec in plan.inputs]
    outputs = [(f"o_{spec.name}", graph.spec(value)) for spec, value in zip(plan.outputs, graph.outputs, strict=True)]
    single = len(outputs) == 1
    kind = "torch::Tensor" if single else "std::vector<torch::Tensor>"
    arguments = ", ".join(f"torch::Tensor {tensor}" for tensor, _ in inputs)
    lines = [f"{kind} {name}_forward({arguments}) {{"]
    lines += [f"  {line}" for line in _sizes(plan, inputs)]
    lines += [f"  {line}" for tensor, spec in inputs for line in _checks(tensor, spec)]
    where = inputs[0][0]
    lines += [f"  auto {tensor} = {_empty(spec, where)};" for tensor, spec in outputs]
    extra = [(f"s_{spec.name}", spec) for spec in (*plan.scratch, *plan.packed)]
    lines += [f"  auto {tensor} = {_bytes(spec, where)};" for tensor, spec in extra]
    pointers = ", ".join(f"{tensor}.data_ptr()" for tensor, _ in (*inputs, *outputs, *extra))
    lines.append(f"  void* const buffers[] = {{{pointers}}};")
    lines.append(f"  const int64_t sizes[] = {{{', '.join([*(f'd_{dim}' for dim in plan.dims), '0'])}}};")
    if plan.target == "cuda":
        lines.append(f"  const c10::cuda::CUDAGuard guard({where}.device());")
        lines.append(f"  {name}_launch(buffers, sizes, 0, c10::cuda::getCurrentCUDAStream().stream());")
    else:
        lines.append(f"  {name}_launch(buffers, sizes);")
    returned = outputs[0][0] if single else "{" + ", ".join(tensor for tensor, _ in outputs) + "}"
    return "\n".join([*lines, f"  return {returned};", "}"]) + "\n"


def _sizes(plan: Plan, inputs: list[tuple[str, TensorSpec]]) -> list[str]:
    expressions = {
        size: f"{tensor}.size({axis})"
        for tensor, spec in reversed(inputs)
        for axis, size in reversed(list(enumerate(spec.shape)))
    }
    missing = [dim for dim in plan.dims if dim not in expressions]
    if missing:
        raise NotSelfContained(f"size {missing[0]} does not follow from one axis of the inputs")
    ranks = [
        f'TORCH_CHECK({tensor}.dim() == {len(spec.shape)}, "{tensor[2:]}: want {len(spec.shape)} axes");'
        for tensor, spec in inputs
    ]
    return [*ranks, *(f"const int64_t d_{dim} = {expressions[dim]};" for dim in plan.dims)]


def _checks(tensor: str, spec: TensorSpec) -> list[str]:
    shape = " && ".join(f"{tensor}.size({axis}) == ({to_cpp(size)})" for axis, size in enumerate(spec.shape)) or "true"
    if spec.strides is None:
        layout = f"{tensor}.is_contiguous()"
    else:
        layout = " && ".join(
            f"{tensor}.stride({axis}) == ({to_cpp(stride)})" for axis, stride in enumerate(spec.strides)
        )
    return [
        f'TORCH_CHECK({tensor}.scalar_type() == torch::{_SCALAR[spec.dtype]}, "{tensor[2:]}: another dtype");',
        f'TORCH_CHECK({shape}, "{tensor[2:]}: a shape that was not verified");',
        f'TORCH_CHECK({layout}, "{tensor[2:]}: a layout that was not verified");',
    ]


def _empty(spec: TensorSpec, where: str) -> str:
    shape = ", ".join(to_cpp(size) for size in spec.shape)
    made = f"torch::TensorOptions().dtype(torch::{_SCALAR[spec.dtype]}).device({where}.device())"
    if spec.strides is None:
        return f"torch::empty({{{shape}}}, {made})"
    return f"torch::empty_strided({{{shape}}}, {{{', '.join(map(to_cpp, spec.strides))}}}, {made})"


def _bytes(spec: BufferSpec, where: str) -> str:
    if spec.strides is not None:
        raise NotSelfContained(f"buffer {spec.name} is strided")
    count = " * ".join([str(DTYPE_BYTES[spec.dtype]), *(f"({to_cpp(size)})" for size in spec.shape)])
    return f"torch::empty({{{count}}}, torch::TensorOptions().dtype(torch::kUInt8).device({where}.device()))"


def to_cpp(expression: str) -> str:
    """Translates an integer expression of a plan to C++ with int64_t arithmetic. All values are non-negative, so `/`
    rounds down."""
    return _to_cpp(ast.parse(expression, mode="eval").body)


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Mod: "%",
}


def _to_cpp(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return f"INT64_C({node.value})"
    if isinstance(node, ast.Name):
        return f"d_{node.id}"
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return f"({_to_cpp(node.left)} {_OPERATORS[type(node.op)]} {_to_cpp(node.right)})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"(-{_to_cpp(node.operand)})"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        one, two = map(_to_cpp, node.args)
        if node.func.id == "cdiv":
            return f"(({one} + {two} - 1) / {two})"
        if node.func.id in ("min", "max"):
            return f"({one} {'<' if node.func.id == 'min' else '>'} {two} ? {one} : {two})"
    raise NotSelfContained(f"not an expression of sizes: {ast.unparse(node)}")
