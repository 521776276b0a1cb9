"""OpGraph: the computation of a module as a record that is read without torch.

The worker exports it with `torch.export` (ATen operators, not decomposed further); generator and models read it. Shapes
are integer expressions over the free dimensions (`"B"`, `"1024"`, `"B*16"`).
"""

from __future__ import annotations

from kernel_assistant.records.codec import Record, content_hash

#: One operand: a string starting with "%" names a value; everything else is a literal.
Operand = str | int | float | bool | None | list[int | str | float | None]

#: Short dtype names and bytes per element.
DTYPE_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b1": 1}


class TensorSpec(Record, frozen=True, kw_only=True):
    """A dense tensor value. `shape` and `strides` count elements; `strides` is None for a contiguous tensor."""

    dtype: str
    shape: tuple[str, ...]
    strides: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"unknown dtype {self.dtype!r}")

    def text(self) -> str:
        layout = "" if self.strides is None else "/" + ",".join(self.strides)
        return f"{self.dtype}[{','.join(self.shape)}]{layout}"


class GraphInput(Record, frozen=True, kw_only=True):
    """A named input of the graph. `kind` is "input" (a tensor of the call), "param" or "buffer"; for the latter two,
    `path` is the dotted name in the module."""

    name: str
    spec: TensorSpec
    kind: str = "input"
    path: str = ""


class Node(Record, frozen=True, kw_only=True):
    """One operator call. `op` is the ATen overload without namespace, e.g. "add.Tensor", "softmax.int"; an operator of
    another library keeps its namespace: "transformers::grouped_mm_fallback"."""

    name: str
    op: str
    args: tuple[Operand, ...]
    kwargs: dict[str, Operand] = {}
    spec: TensorSpec


class OpGraph(Record, frozen=True, kw_only=True):
    """A module's computation as a straight-line program. `dims` maps each free dimension to its base size, its size in
    the exported inputs; `nodes` are in order; `outputs` are names of values."""

    dims: dict[str, int]
    inputs: tuple[GraphInput, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {value.name for value in self.inputs}
        for node in self.nodes:
            for name in references(node):
                if name not in known:
                    raise ValueError(f"{node.name} uses {name}, which is not defined before it")
            if node.name in known:
                raise ValueError(f"{node.name} is defined twice")
            known.add(node.name)
        for name in self.outputs:
            if name not in known:
                raise ValueError(f"output {name} is not defined")

    def spec(self, name: str) -> TensorSpec:
        """Returns dtype, shape and strides of the value called `name`. Raises KeyError if there is none."""
        for value in self.inputs:
            if value.name == name:
                return value.spec
        for node in self.nodes:
            if node.name == name:
                return node.spec
        raise KeyError(name)

    def text(self) -> str:
        """Returns the graph as text, one line for each value. Free dimensions keep their names; base sizes are left
        out."""
        lines = [f"dims {' '.join(self.dims)}"] if self.dims else []
        lines += [f"{value.kind} {value.name} {value.spec.text()}" for value in self.inputs]
        for node in self.nodes:
            operands = [_operand_text(operand) for operand in node.args]
            operands += [f"{key}={_operand_text(node.kwargs[key])}" for key in sorted(node.kwargs)]
            lines.append(f"%{node.name} = {node.op}({', '.join(operands)}) {node.spec.text()}")
        lines.append("return " + ", ".join(f"%{name}" for name in self.outputs))
        return "\n".join(lines) + "\n"

    def hash(self) -> str:
        """Returns the hash of the text and the base sizes: equal graphs at equal sizes have the same hash."""
        return content_hash([self.text(), sorted(self.dims.items())])


def references(node: Node) -> list[str]:
    """Returns the names of the values that `node` reads, in order, with repeats."""
    names: list[str] = []
    for operand in (*node.args, *node.kwargs.values()):
        if isinstance(operand, str):
            if operand.startswith("%"):
                names.append(operand[1:])
        elif isinstance(operand, list):
            names += [item[1:] for item in operand if isinstance(item, str) and item.startswith("%")]
    return names


def name_of(operand: object) -> str:
    """Returns the name of the value that an operand refers to, "" if the operand is a literal."""
    return operand[1:] if isinstance(operand, str) and operand.startswith("%") else ""


def spec_of(graph: OpGraph, operand: object) -> TensorSpec | None:
    """Returns dtype, shape and strides of the value that an operand refers to; None if the operand is a literal."""
    name = name_of(operand)
    return graph.spec(name) if name else None


def readers_of(graph: OpGraph) -> dict[str, list[Node]]:
    """Returns value → nodes that read it, in order and without repeats. Values that no node reads are left out."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(references(node)):
            readers.setdefault(name, []).append(node)
    return readers


def _operand_text(operand: Operand) -> str:
    if isinstance(operand, list):
        return "[" + ", ".join(_operand_text(item) for item in operand) + "]"
    if isinstance(operand, bool):
        return "true" if operand else "false"
    if operand is None:
        return "none"
    if isinstance(operand, float):
        return repr(operand)
    return str(operand)
