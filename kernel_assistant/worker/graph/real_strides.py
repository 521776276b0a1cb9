"""Corrects the strides of the fake values in an exported program to those that PyTorch gives in a real run. The shapes
are right, but a few operators lay out their result otherwise than torch's tracing says (`roll` of channels-last values,
`batch_norm` of permuted ones, resizing on CUDA)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Interpreter, Node
from torch.utils import _pytree as pytree

from ..symbols import InexpressibleError

#: For each node the strides of its tensor, or of each of its tensors.
Strides = dict[Node, Any]


def with_real_strides(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> None:
    """Runs the program once on `inputs`, then sets the fake values of its nodes (`meta["val"]`) to ones with the
    strides of that run.

    A corrected view shares the storage of its base. Raises InexpressibleError if a corrected value has gaps in memory
    and free dimensions, because its strides are known only at the sizes of the run.
    """
    recorded = _Recorder(program)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        recorded.run(*_values(program, inputs))
    _retrace(program, recorded.strides)


class _Recorder(Interpreter):
    """Runs a program with real tensors; afterwards `strides` has the strides of each node's result."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program.graph_module)
        self.strides: Strides = {}

    def run_node(self, node: Node) -> Any:
        result = self._run(node)
        if node.op == "call_function":
            self.strides[node] = _strides(result)
        return result

    def _run(self, node: Node) -> Any:
        if node.op != "call_function":
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        return _call(node, args, kwargs)


def _call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the node's operator, but `reshape` for a view: the real strides may not allow a view."""
    target: Any = node.target
    if target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
        target = torch.ops.aten.reshape.default
    return target(*args, **kwargs)


def _retrace(program: ExportedProgram, real: Strides) -> None:
    """Computes the fake values of the nodes again, with the strides in `real` wherever an operator's fake strides
    differ."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    fake = detect_fake_mode([node.meta.get("val") for node in program.graph.nodes])
    with fake or contextlib.nullcontext(), torch.no_grad():
        for node in nodes:
            args, kwargs = pytree.tree_map(_noted, (node.args, node.kwargs))
            node.meta["val"] = _corrected(_call(node, args, kwargs), real[node], node)


def _noted(operand: Any) -> Any:
    return operand.meta["val"] if isinstance(operand, Node) else operand


def _corrected(value: Any, wanted: Any, node: Node) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_corrected(one, strides, node) for one, strides in zip(value, wanted, strict=True))
    if not _differs(value, wanted):
        return value
    order = order_in_memory([hint(size) for size in value.shape], wanted)
    if order is None and any(isinstance(size, torch.SymInt) for size in value.shape):
        raise InexpressibleError(f"{node.target} gives strides {list(wanted)} that depend on free dimensions")
    strides = list(wanted) if order is None else _dense(value.shape, order)
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)


def order_in_memory(sizes: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Returns the dimensions of a tensor from the outermost in memory to the innermost; None if its elements have gaps
    between them or overlap. Dimensions of size 1 do not count for that."""
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], sizes[dim] == 1, dim))
    expected = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order


def strides_text(shape: Sequence[str], order: Sequence[int]) -> list[str]:
    """Returns the strides, as expressions, of a tensor without gaps. `shape` has its sizes as expressions, `order` its
    dimensions from the outermost in memory to the innermost."""
    strides = [""] * len(shape)
    factors: list[str] = []
    for dim in reversed(order):
        named = sorted(text for text in factors if not text.isdigit())
        number = math.prod(int(text) for text in factors if text.isdigit())
        strides[dim] = "*".join([*named, *([str(number)] if number != 1 or not named else [])])
        factors.append(shape[dim] if shape[dim].isalnum() else f"({shape[dim]})")
    return strides


def _dense(shape: Sequence[Any], order: list[int]) -> list[Any]:
    strides: list[Any] = [1] * len(shape)
    step: Any = 1
    for dim in reversed(order):
        strides[dim] = step
        step = step * shape[dim]
    return strides


def _strides(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [_strides(one) for one in result]
    return tuple(result.stride()) if isinstance(result, torch.Tensor) else None


def _differs(value: Any, strides: Any) -> bool:
    """Whether a fake value, or one of several, has other strides than the real run gave. Strides of dimensions of size
    1 and of empty tensors do not count."""
    if isinstance(value, (tuple, list)):
        return any(_differs(one, other) for one, other in zip(value, strides, strict=True))
    if not isinstance(value, torch.Tensor) or strides is None:
        return False
    sizes = [hint(size) for size in value.shape]
    rows = zip(sizes, value.stride(), strides, strict=True)
    return 0 not in sizes and any(size != 1 and hint(noted) != real for size, noted, real in rows)


def hint(size: Any) -> Any:
    """Returns the value that a size had at the export, without the guard that reading it would add: that would fix a
    symbolic size."""
    return size if isinstance(size, int) else size.node.hint


def _values(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Returns the values for the program's placeholders, in order: parameters, buffers and constants of the program,
    and `inputs` for the user's tensors."""
    held: dict[str, Any] = {**program.constants, **program.state_dict}
    given = iter(inputs)
    return [
        (next(given) if isinstance(spec.arg, torch.export.graph_signature.TensorArgument) else spec.arg.value)
        if spec.kind == InputKind.USER_INPUT
        else held[str(spec.target)]
        for spec in program.graph_signature.input_specs
    ]
