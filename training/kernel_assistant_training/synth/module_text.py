"""Writes a graph as a Python file whose module computes the graph."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping

from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import GraphInput, Operand
from kernel_assistant_training.synth.memory import size_at

TORCH = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b1": "bool",
}
#: The exporter's operator for a batch norm in eval mode; the module calls `batch_norm` instead.
_BATCH_NORM = "_native_batch_norm_legit_no_training"
_MAKING = ("arange", "zeros", "ones", "full", "eye", "empty")
#: Operators that take indices: the position of the index operand, of the operand that is indexed, and the dimension of
#: the latter (a number, or as text the position of the operand that gives it).
_INDEXED: dict[str, tuple[int, int, int | str]] = {
    "embedding": (1, 0, 0),
    "gather": (2, 0, "1"),
    "index_select": (2, 0, "1"),
    "cross_entropy_loss": (1, 0, 1),
}


def module_text(graph: OpGraph) -> str:
    """Returns the source of a Python file with `Model`, `get_inputs` and `get_init_inputs`. The worker's trace of
    `Model` is `graph`.

    Every operator is called as in the graph, through `torch.ops.aten`. Parameters are drawn around 1, indices below the
    size of the dimension that they index.
    """
    below = limits(graph)
    held = [value for value in graph.inputs if value.kind != "input"]
    given = [value for value in graph.inputs if value.kind == "input"]
    lines = ["import torch", "from torch import nn", "", "aten = torch.ops.aten", "", "", "class Model(nn.Module):"]
    if held:
        lines += ["    def __init__(self) -> None:", "        super().__init__()"]
        lines += [f"        {_made(value, graph, below)}" for value in held] + [""]
    arguments = ", ".join(f"{value.name}: torch.Tensor" for value in given)
    lines.append(f"    def forward(self, {arguments}):")
    names = {value.name: value.name if value.kind == "input" else f"self.{value.name}" for value in graph.inputs}
    lines += [f"        {line}" for line in _body(graph, names)]
    lines += ["", "", "def get_inputs():"]
    lines.append(f"    return [{', '.join(_drawn(value, graph, below) for value in given)}]")
    lines += ["", "", "def get_init_inputs():", "    return []", ""]
    return "\n".join(lines)


def _body(graph: OpGraph, names: dict[str, str]) -> Iterator[str]:
    for dim in graph.dims:
        name, index = next(
            (value.name, value.spec.shape.index(dim))
            for value in graph.inputs
            if value.kind == "input" and dim in value.spec.shape
        )
        yield f"{dim} = {name}.size({index})"
    first = next(value.name for value in graph.inputs if value.kind == "input")
    for node in graph.nodes:
        names[node.name] = node.name
        yield f"{node.name} = {_call(node, names, graph, first)}"
    results = [names[name] for name in graph.outputs]
    yield f"return {results[0]}" if len(results) == 1 else f"return {', '.join(results)}"


def _call(node: Node, names: dict[str, str], graph: OpGraph, first: str) -> str:
    written = operand_text(names, lambda text: text if _has_dim(text, graph) else None)
    args = [written(operand) for operand in node.args]
    if node.op == "getitem":
        return f"{args[0]}[{args[1]}]"
    if node.op == _BATCH_NORM:
        return f"(aten.batch_norm.default({', '.join([*args[:5], 'False', *args[5:], 'True'])}),)"
    if node.op == "instance_norm":
        args.append("True")  # cudnn_enabled chooses an implementation, and graphs leave it out
    args += [f"{key}={written(operand)}" for key, operand in node.kwargs.items()]
    if node.op.partition(".")[0] in _MAKING:
        args.append(f"device={first}.device")
    op = node.op if "." in node.op else f"{node.op}.default"
    if node.op == "clone":
        args.append("memory_format=torch.contiguous_format")
    name, overload = op.split(".")
    called = f"{name}.{overload}" if not keyword.iskeyword(name) else f"__getattr__({name!r}).{overload}"
    return f"aten.{called}({', '.join(args)})"


def operand_text(names: Mapping[str, str], size: Callable[[str], str | None]) -> Callable[[Operand], str]:
    """Returns a function that returns the source of an operand. `names` has the source of each value. `size` gets the
    text of an operand; it returns the source of a text that is a size, and None for any other text."""

    def written(operand: Operand) -> str:
        if isinstance(operand, list):
            return f"[{', '.join(map(written, operand))}]"
        if not isinstance(operand, str):
            return repr(operand)
        if operand.startswith("%"):
            return names[operand[1:]]
        if operand in TORCH:
            return f"torch.{TORCH[operand]}"
        number = decoded(operand, "a call")
        return f"float({operand!r})" if isinstance(number, float) else size(operand) or repr(operand)

    return written


def _has_dim(text: str, graph: OpGraph) -> bool:
    return any(part in graph.dims for part in text.replace("*", " ").replace("//", " ").split())


def _made(value: GraphInput, graph: OpGraph, limits: dict[str, int]) -> str:
    if value.kind == "param":
        return f"self.{value.name} = nn.Parameter({_drawn(value, graph, limits)})"
    return f'self.register_buffer("{value.name}", {_drawn(value, graph, limits)})'


def _drawn(value: GraphInput, graph: OpGraph, limits: dict[str, int]) -> str:
    sizes = [size_at(size, graph.dims) for size in value.spec.shape]
    shape = ", ".join(map(str, sizes))
    dtype = TORCH[value.spec.dtype]
    tail = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if value.spec.dtype == "b1":
        return f"torch.rand({shape}) > 0.5"
    if not dtype.startswith(("float", "bfloat")):
        return f"torch.randint(0, {limits.get(value.name, 100)}, ({shape}{',' if len(sizes) == 1 else ''}){tail})"
    shape = shape or "()"
    if value.kind == "input":
        return f"torch.randn({shape}{tail})"
    return f"torch.rand({shape}{tail}) + 0.5"


def limits(graph: OpGraph) -> dict[str, int]:
    """Returns name → exclusive upper bound of the elements, for each value of the graph that is used as an index."""
    bounds: dict[str, int] = {}
    for node in graph.nodes:
        positions = _INDEXED.get(node.op.partition(".")[0])
        if positions is None:
            continue
        index, table = node.args[positions[0]], node.args[positions[1]]
        along = positions[2]
        dim = along if isinstance(along, int) else node.args[int(along)]
        if isinstance(index, str) and isinstance(table, str) and isinstance(dim, int):
            size = size_at(graph.spec(table[1:]).shape[dim], graph.dims)
            bounds[index[1:]] = min(size, bounds.get(index[1:], size))
    return bounds
