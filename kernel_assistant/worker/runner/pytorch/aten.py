"""Runs one node of a task's graph of ATen operators by PyTorch: finds the operator's overload and converts the
operands. Needs torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from ..plan import PlanError, evaluate, number_of
from .tensors import DTYPES

#: Operators that can write to a given output at no cost, and the allowed dimensions of their first operand.
WRITES = {"mm": (2,), "bmm": (3,), "addmm": (2,), "matmul": (2, 3), "linear": (2,)}

#: Views that PyTorch refuses where the strides do not allow them. A value that kernels wrote may lie otherwise than
#: the reference's, so the elements are copied there.
RESHAPES = frozenset(("view", "_unsafe_view"))

#: Operators that copy their first operand and change the copy, and constants that nobody else has.
CHANGES = frozenset(
    "index_put index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce masked_scatter".split()
)
FRESH = frozenset(
    "empty empty_like full full_like new_empty new_full new_ones new_zeros ones ones_like zeros zeros_like".split()
)

Values = dict[str, Any]


class _Value:
    """An operand that refers, by name, to a value of the graph."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Operator:
    """Calls PyTorch's operator of one graph node on values that were computed before. Raises PlanError if this PyTorch
    has no such operator, or if the operands do not fit it."""

    def __init__(self, node: dict[str, Any], dims: dict[str, int], device: str) -> None:
        self.name: str = node["name"]
        self._function: Callable[..., Any]
        self._writer: Callable[..., Any] | None = None
        self._keywords: dict[str, Any] = {}
        if node["op"] == "getitem":
            self._function = _pick
            self._arguments = [_operand(item) for item in node["args"]]
            return
        function = _overload(node["op"])
        self._function = function
        arguments = function._schema.arguments
        given = {argument.name: item for argument, item in zip(arguments, node["args"])}  # noqa: B905 - some may be left out
        given |= node.get("kwargs", {})
        known = {argument.name: argument for argument in arguments}
        if len(node["args"]) > len(arguments) or not set(given) <= set(known):
            raise PlanError(f"{node['op']} takes {', '.join(known)}")
        values = {name: _converted(item, str(known[name].real_type), dims, node["op"]) for name, item in given.items()}
        for argument in arguments:
            if argument.name not in values and argument.name == "device":
                values["device"] = torch.device(device)
            elif argument.name not in values and argument.name.startswith("cudnn_enable"):
                values[argument.name] = torch.backends.cudnn.enabled
            elif argument.name not in values and argument.name == "memory_format" and _is_contiguous(node):
                # Graphs leave this out because the spec says it; PyTorch's default keeps the operand's strides.
                values["memory_format"] = torch.contiguous_format
        positional = [argument.name for argument in arguments if not argument.kwarg_only]
        count = next((at for at, name in enumerate(positional) if name not in values), len(positional))
        self._arguments = [values.pop(name) for name in positional[:count]]
        self._keywords = values
        name, _, overload = node["op"].partition(".")
        self._ranks: tuple[int, ...] = WRITES.get(name, ()) if not overload else ()
        if self._ranks:
            self._writer = getattr(torch.ops.aten, name).out
        if node["op"] in RESHAPES:
            self._function = torch.ops.aten.reshape.default

    def __call__(self, values: Values) -> None:
        """Computes the node and adds its value to `values`, a dict from the names of graph values to tensors."""
        arguments = [_given(item, values) for item in self._arguments]
        keywords = {name: _given(item, values) for name, item in self._keywords.items()}
        values[self.name] = self._function(*arguments, **keywords)

    def write(self, values: Values, out: torch.Tensor) -> bool:
        """Computes the node as `__call__` does, but the operator writes its result directly to `out`. Returns False,
        and computes nothing, if the operator cannot do so without extra cost."""
        arguments = [_given(item, values) for item in self._arguments]
        if self._writer is None or not out.is_contiguous() or arguments[0].dim() not in self._ranks:
            return False
        self._writer(*arguments, **{name: _given(item, values) for name, item in self._keywords.items()}, out=out)
        values[self.name] = out
        return True


def in_place(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the last of `nodes`, changed to an in-place operator if its first operand is a constant that the other
    nodes create only for it. This saves a copy that the module does not make either: its graph writes in-place
    operators as out-of-place ones."""
    last = nodes[-1]
    name, dot, overload = last["op"].partition(".")
    first = str(last["args"][0])[1:] if last["args"] else ""
    made = next((node for node in nodes[:-1] if node["name"] == first), None)
    if name not in CHANGES or made is None or made["op"].partition(".")[0] not in FRESH:
        return last
    if sum(json.dumps([node["args"], node.get("kwargs", {})]).count(f'"%{first}"') for node in nodes) > 1:
        return last
    return {**last, "op": f"{name}_{dot}{overload}"}


def _is_contiguous(node: dict[str, Any]) -> bool:
    return "spec" in node and node["spec"].get("strides") is None


def _pick(results: Any, position: int) -> Any:
    return results[position]


def _overload(op: str) -> Any:
    library, _, name = op.rpartition("::")
    packet, _, overload = name.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, library or "aten"), packet), overload or "default")
    except AttributeError as error:
        if library:
            raise PlanError(f"{op}: no such operator is registered, unless forward itself does it") from error
        raise PlanError(f"PyTorch {torch.__version__} has no operator aten.{op}") from error


def _operand(item: Any) -> Any:
    return _Value(item[1:]) if isinstance(item, str) and item.startswith("%") else item


def _given(item: Any, values: Values) -> Any:
    if type(item) is _Value:
        return values[item.name]
    return [_given(one, values) for one in item] if type(item) is list else item


def _converted(item: Any, kind: str, dims: dict[str, int], op: str) -> Any:
    """Converts an operand from its form in a graph (JSON) to a value for an argument whose type in the operator's
    schema is `kind`, such as "float" or "List[int]". Raises PlanError."""
    if isinstance(item, list):
        inside = kind.removeprefix("Optional[").partition("[")[2].rstrip("]")
        return [_converted(one, inside, dims, op) for one in item]
    if isinstance(item, str) and item.startswith("%"):
        return _Value(item[1:])
    plain = kind.removeprefix("Optional[").rstrip("]")
    if plain == "bool":
        return bool(item)
    if not isinstance(item, str) or plain == "str":
        return item
    if plain in _NAMED:
        constant = DTYPES.get(item) or getattr(torch, item, None)
        if isinstance(constant, _NAMED[plain]):
            return constant
    if plain == "Device":
        return torch.device(item)
    number = number_of(item)
    if plain in ("float", "number", "Tensor") and number is not None:
        return number
    if plain in ("int", "SymInt", "float", "number", "Tensor"):  # a tensor may be divided by a size
        return evaluate(item, dims)
    raise PlanError(f"{op}: {item!r} is no {plain}")


_NAMED: dict[str, Any] = {
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "MemoryFormat": torch.memory_format,
}
