"""Converts one ExportedProgram to an OpGraph as builtins, in a canonical form: equal modules give equal text.

Inputs are `x0`, `x1`, … in the order of the call, parameters `p0`, … and buffers `b0`, … in order of first use, nodes
`n0`, …; sizes are expressions. Unused values, asserts, and operators that change nothing are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx import Node

from ..process.worker_errors import TaskError
from ..symbols import InexpressibleError, Symbols, solve_dims
from ..user_module.inputs import DTYPES
from .literal_tensors import is_lifted, runs_of
from .operators import is_identity, is_random, op_name, refuse_changes, without_defaults
from .storage_positions import OPERANDS

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


class GraphWriter:
    """Converts one exported program to an OpGraph. `write()` returns the graph and sets the other attributes. `tensors`
    are the tensor inputs of the user's call in order; `made` names the constants that `forward` makes of numbers in
    each call."""

    def __init__(
        self, program: ExportedProgram, tensors: Sequence[torch.Tensor], made: frozenset[str] = frozenset()
    ) -> None:
        self.program, self.made = program, made
        self.tensors = tensors
        self.symbols = Symbols()
        self.dims: dict[str, int] = {}
        self.ranges: dict[str, tuple[int, int | None]] = {}
        self.input_specs: list[dict[str, Any]] = []
        self.out_specs: list[dict[str, Any]] = []
        self.constants: dict[str, tuple[str, str, torch.Tensor | None]] = {}
        self.written: list[str] = []
        self.added: dict[str, int] = {}
        self._names: dict[Node, str] = {}
        self._values: dict[Node, Any] = {}
        self._held: dict[Node, tuple[str, str]] = {}
        self._lifted = set[str]()
        self._calls: dict[str, str] = {}
        self._used: dict[str, list[dict[str, Any]]] = {"input": [], "param": [], "buffer": []}

    def write(self) -> dict[str, Any]:
        """Returns the OpGraph as builtins: a dict with `dims`, `inputs`, `nodes` and `outputs`. Raises
        InexpressibleError for operators, operands or sizes that a graph cannot express, and TaskError for a module that
        cannot be a task."""
        self._read_inputs()
        outputs = self._outputs()
        live = _live(outputs)
        for node in self._placeholders():
            if node in live and node in self._names:
                self._used["input"].append(self._value(node, self._names[node], "input", ""))
        nodes: list[dict[str, Any]] = []
        for node, (_, path) in self._held.items():
            runs = runs_of(self.program.constants[path]) if node in live and path in self.made else None
            if runs is not None:
                self._names[node] = self._write_literal(self.program.constants[path], runs, nodes)
        for node in self.program.graph.nodes:
            if node.op == "call_function" and node in live and not _is_symbolic(node):
                self._write_node(node, nodes)
        names = [self._name(node) for node in outputs]
        self.out_specs = [self._spec(node.meta["val"]) for node in outputs]
        inputs = [*self._used["input"], *self._used["param"], *self._used["buffer"]]
        return {"dims": dict(self.dims), "inputs": inputs, "nodes": nodes, "outputs": names}

    @property
    def foreign(self) -> list[str]:
        """The names in the graph of tensors that are no parameters, buffers or attributes of the module."""
        return [name for name, (_, path, _) in self.constants.items() if path in self._lifted]

    def _placeholders(self) -> list[Node]:
        return [node for node in self.program.graph.nodes if node.op == "placeholder"]

    def _read_inputs(self) -> None:
        specs = self.program.graph_signature.input_specs
        users: list[Node] = []
        for node, spec in zip(self._placeholders(), specs, strict=True):
            if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
                self._names[node] = f"x{len(users)}"
                users.append(node)
            elif spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument):
                self._values[node] = spec.arg.value
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                if is_lifted(spec):
                    self._lifted.add(str(spec.target))
                self._held[node] = ("param" if spec.kind == InputKind.PARAMETER else "buffer", str(spec.target))
            else:
                raise InexpressibleError(f"an input of kind {spec.kind.name}")
        if len(users) != len(self.tensors):
            raise InexpressibleError(f"{len(self.tensors)} tensor inputs, but {len(users)} in the exported program")
        self._bind_symbols(users)
        self.input_specs = [self._spec(node.meta["val"]) for node in users]

    def _bind_symbols(self, users: list[Node]) -> None:
        shapes = [node.meta["val"].shape for node in users]
        for shape in shapes:
            for size in shape:
                self.symbols.add(size)
        pairs = [
            (self.symbols.text(size), actual)
            for shape, tensor in zip(shapes, self.tensors, strict=True)
            for size, actual in zip(shape, tensor.shape, strict=True)
        ]
        dims = solve_dims(pairs)
        self.dims = {name: dims[name] for name in self.symbols.names}
        self.ranges = dict.fromkeys(self.dims, (1, None))
        for symbol, bounds in self.program.range_constraints.items():
            name = self.symbols.name(symbol)
            if name is not None:
                self.ranges[name] = _range(bounds)

    def _outputs(self) -> list[Node]:
        """Returns the nodes of the tensor outputs, in order, followed by the nodes with the new values of buffers,
        whose paths it appends to `written`. Leaves out an output None; `tensor_outputs` in task_checks.py refuses any
        other output that is not a tensor."""
        (output,) = (node for node in self.program.graph.nodes if node.op == "output")
        nodes, changed = [], []
        for node, spec in zip(output.args[0], self.program.graph_signature.output_specs, strict=True):
            if spec.kind == OutputKind.BUFFER_MUTATION:
                added = self._added(node, str(spec.target))
                if added is None:
                    self.written.append(str(spec.target))
                    changed.append(node)
                else:
                    self.added[str(spec.target)] = added
                continue
            if spec.kind == OutputKind.USER_INPUT_MUTATION:
                raise TaskError(
                    "mutates_inputs",
                    f"forward changes {spec.target or 'an input'} in place",
                    "return the new value instead, or use a mode (eval) in which nothing is changed",
                )
            if spec.kind != OutputKind.USER_OUTPUT:
                raise InexpressibleError(f"an output of kind {spec.kind.name}")
            if isinstance(spec.arg, TensorArgument):
                nodes.append(node)
        return [*nodes, *changed]

    def _added(self, node: Node, path: str) -> int | None:
        """Returns the number that a call adds to the buffer `path` if that is a counter (a scalar of integers), and
        None for anything else. `node` is the buffer's new value."""
        value = node.meta["val"]
        counts = value.dim() == 0 and not value.is_floating_point() and not value.is_complex()
        if not counts or str(node.target) != "aten.add.Tensor" or node.kwargs or len(node.args) != 2:
            return None
        buffer, number = node.args
        same = isinstance(buffer, Node) and self._held.get(buffer) == ("buffer", path)
        return number if same and type(number) is int else None

    def _write_node(self, node: Node, nodes: list[dict[str, Any]]) -> None:
        if is_identity(node):
            self._names[node] = self._name(node.args[0])
            return
        refuse_changes(node)
        positional, named = (list(node.meta[OPERANDS]), {}) if OPERANDS in node.meta else without_defaults(node)
        args = [self._operand(argument) for argument in positional]
        kwargs = {key: self._operand(value) for key, value in named.items() if not self._is_layout(key, value)}
        # Equal calls give one value, because an exported graph changes nothing in place.
        call = repr((op_name(node.target), args, sorted(kwargs.items())))
        if call in self._calls and not is_random(node):
            self._names[node] = self._calls[call]
            return
        name = self._names[node] = self._calls[call] = f"n{len(nodes)}"
        spec = self._spec(_first(node.meta["val"]))
        nodes.append({"name": name, "op": op_name(node.target), "args": args, "kwargs": kwargs, "spec": spec})

    def _write_literal(self, value: torch.Tensor, runs: list[tuple[Any, int]], nodes: list[dict[str, Any]]) -> str:
        """Appends to `nodes` those that make the constant `value` from its runs of equal numbers; returns the name of
        the last one. `runs` are pairs (number, how often it is repeated)."""

        def add(op: str, args: list[Any], *shape: int) -> str:
            spec = self._spec(torch.empty(shape, dtype=value.dtype, device="meta"))
            call = repr((op, args, spec))
            if call not in self._calls:
                self._calls[call] = f"n{len(nodes)}"
                nodes.append({"name": self._calls[call], "op": op, "args": args, "kwargs": {}, "spec": spec})
            return self._calls[call]

        shape = list(value.shape)
        if len(runs) < 2:
            return add("full", [shape, self._scalar(runs[0][0]) if runs else 0], *shape)
        parts = [f"%{add('full', [[count], self._scalar(number)], count)}" for number, count in runs]
        name = add("cat", [parts], value.numel())
        return name if value.dim() == 1 else add("view", [f"%{name}", shape], *shape)

    def _name(self, node: Any) -> str:
        """Returns the graph's name for the value of a node. A parameter or buffer is given its name at first use.
        Raises InexpressibleError if the node is no tensor."""
        if node not in self._names:
            if node not in self._held:
                raise InexpressibleError(f"{node} is not a tensor")
            kind, path = self._held[node]
            name = f"{'p' if kind == 'param' else 'b'}{len(self._used[kind])}"
            self._names[node] = name
            self._used[kind].append(self._value(node, name, kind, path))
            self.constants[name] = (kind, path, self.program.constants.get(path))
        return self._names[node]

    def _value(self, node: Node, name: str, kind: str, path: str) -> dict[str, Any]:
        return {"name": name, "spec": self._spec(node.meta["val"]), "kind": kind, "path": path}

    def _operand(self, value: Any, nested: bool = False) -> Any:
        if isinstance(value, Node):
            if value in self._values:
                return self._operand(self._values[value], nested)
            if _is_symbolic(value):
                return self._scalar(value.meta["val"])
            return f"%{self._name(value)}"
        if isinstance(value, (list, tuple)):
            if nested:
                raise InexpressibleError("an operand that is a list of lists")
            return [self._operand(item, nested=True) for item in value]
        if isinstance(value, bool):
            return int(value) if nested else value
        return self._scalar(value)

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            text = self.symbols.text(value)
            return int(text) if text.lstrip("-").isdigit() else text
        if isinstance(value, float):
            return value if value - value == 0 else str(value)
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, torch.dtype):
            return DTYPES.get(value, str(value).removeprefix("torch."))
        if isinstance(value, (torch.device, torch.layout, torch.memory_format, complex)):
            return str(value).removeprefix("torch.")
        raise InexpressibleError(f"an operand of type {type(value).__name__}")

    def _is_layout(self, key: str, value: Any) -> bool:
        """Whether a keyword argument adds no information: it is the device that all tensors are on, or a layout that
        the specs contain."""
        if key in ("pin_memory", "layout", "non_blocking") or value is None:
            return True
        if key == "memory_format":
            return value in (torch.contiguous_format, torch.preserve_format)
        return key == "device" and torch.device(value).type in {tensor.device.type for tensor in self.tensors}

    def _spec(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, torch.Tensor):
            raise InexpressibleError(f"a value of type {type(value).__name__}")
        if value.dtype not in DTYPES or value.layout != torch.strided:
            raise TaskError(
                "unsupported_output",
                f"forward computes with {value.layout} tensors of {value.dtype}",
                f"use dense tensors of {', '.join(str(dtype).removeprefix('torch.') for dtype in DTYPES)}",
            )
        shape = [self.symbols.text(size) for size in value.shape]
        spec: dict[str, Any] = {"dtype": DTYPES[value.dtype], "shape": shape, "strides": None}
        if not self._is_contiguous(value):
            spec["strides"] = [self.symbols.text(stride) for stride in value.stride()]
        return spec

    def _is_contiguous(self, value: torch.Tensor) -> bool:
        """Whether a value is contiguous at the base sizes and at other sizes too: at the base sizes alone, its strides
        may equal the contiguous ones by chance."""
        for dims in (self.dims, {name: 3 * size + 7 for name, size in self.dims.items()}):
            sizes = [self.symbols.value(size, dims) for size in value.shape]
            strides = [self.symbols.value(stride, dims) for stride in value.stride()]
            if not is_contiguous(sizes, strides):
                return False
        return True


def is_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor is contiguous as torch defines it: the stride of a dimension of size 1 does not count, and an
    empty tensor is contiguous."""
    if 0 in sizes:
        return True
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _live(outputs: list[Node]) -> set[Node]:
    """Returns the nodes on whose values an output depends. A node of which only the size is read does not count: in a
    graph, sizes are expressions and not nodes."""
    live: set[Node] = set()
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node not in live:
            live.add(node)
            waiting += [] if _is_symbolic(node) else _read(node)
    return live


def _read(node: Node) -> list[Node]:
    return [item for item in node.meta.get(OPERANDS, node.all_input_nodes) if isinstance(item, Node)]


def _is_symbolic(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), _SYMBOLIC)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def _range(bounds: Any) -> tuple[int, int | None]:
    """Returns the lowest and the highest size (None: no upper bound). torch's lower bound of 2 only means that sizes 0
    and 1 were not traced, so the lowest size is then 1."""
    lower = int(bounds.lower) if getattr(bounds.lower, "is_Integer", False) else 1
    upper = int(bounds.upper) if getattr(bounds.upper, "is_Integer", False) else None
    return (1 if lower <= 2 else lower), upper
