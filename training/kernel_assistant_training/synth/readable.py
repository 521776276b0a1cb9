"""Writes a graph as a task that people could have written, with calls such as `F.softmax(n0, -1)` and `n1 * self.p0`.
Also lists the graph's operators."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_assistant.records import OpGraph
from kernel_assistant.records.graph import GraphInput
from kernel_assistant_training.synth.calls import BATCH_NORM, Unwritten, call, name_of
from kernel_assistant_training.synth.module_text import TORCH, limits, operand_text

#: The batch size in a new text; whoever runs the text changes it to reach a certain time.
BATCH = 16


def operators(graph: OpGraph) -> tuple[str, ...]:
    """Returns the plain names of the graph's operators that compute something, in order of first use."""
    return tuple(dict.fromkeys(name for node in graph.nodes if (name := name_of(node))))


def readable(graph: OpGraph) -> str:
    """Returns the source of a task: a comment with the operators' names, BATCH, `Model`, `get_inputs` and
    `get_init_inputs`. Raises Unwritten for an operator or dtype that cannot be written."""
    below = limits(graph)
    held = [value for value in graph.inputs if value.kind != "input"]
    given = [value for value in graph.inputs if value.kind == "input"]
    body = list(_body(graph))
    lines = [f"# operators: {', '.join(operators(graph))}", "import torch"]
    lines += ["import torch.nn.functional as F"] if any("F." in line for line in body) else []
    lines += ["from torch import nn", "", f"BATCH = {BATCH}", "", "", "class Model(nn.Module):"]
    if held:
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f"        {_made(value, below)}" for value in held] + [""]
    lines.append(f"    def forward(self, {', '.join(value.name for value in given)}):")
    lines += [f"        {line}" for line in body]
    lines += ["", "", "def get_inputs():", f"    return [{', '.join(_drawn(value, below) for value in given)}]"]
    lines += ["", "", "def get_init_inputs():", "    return []", ""]
    return "\n".join(lines)


def _body(graph: OpGraph) -> Iterator[str]:
    names = {value.name: value.name if value.kind == "input" else f"self.{value.name}" for value in graph.inputs}
    names |= {node.name: node.name for node in graph.nodes}
    first, index = next(
        (value.name, value.spec.shape.index("B"))
        for value in graph.inputs
        if value.kind == "input" and "B" in value.spec.shape
    )
    batch = f"{first}.size({index})"
    written = operand_text(names, lambda text: text.replace("B", batch) if "B" in text.split("*") else None)
    whole = {node.name for node in graph.nodes if node.op == BATCH_NORM}
    for node in graph.nodes:
        if node.op == "getitem" and str(node.args[0])[1:] in whole:
            # The readable call returns only the first of the three results.
            names[node.name] = str(node.args[0])[1:]
        else:
            yield f"{node.name} = {call(node, written)}"
    yield f"return {', '.join(names[name] for name in graph.outputs)}"


def _made(value: GraphInput, below: dict[str, int]) -> str:
    if value.kind == "param":
        return f"self.{value.name} = nn.Parameter({_drawn(value, below)})"
    return f'self.register_buffer("{value.name}", {_drawn(value, below)})'


def _drawn(value: GraphInput, below: dict[str, int]) -> str:
    """Returns the source of an expression that draws a value, as in `module_text`, but with BATCH for the batch size.
    `below` has the upper bounds of indices, by name. Raises Unwritten for other dtypes than floats, int64 and bool."""
    sizes = ["*".join("BATCH" if one == "B" else one for one in size.split("*")) for size in value.spec.shape]
    shape, dtype = ", ".join(sizes) or "()", TORCH[value.spec.dtype]
    tail = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if dtype == "bool":
        return f"torch.rand({shape}) > 0.5"
    if dtype == "int64":
        return f"torch.randint({below.get(value.name, 100)}, ({shape}{',' if len(sizes) == 1 else ''}))"
    if dtype not in ("float32", "bfloat16", "float16"):
        raise Unwritten(dtype)
    return f"torch.randn({shape}{tail})" if value.kind == "input" else f"torch.rand({shape}{tail}) + 0.5"
