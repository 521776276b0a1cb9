"""The same decision while `torch.compile` or `torch.export` traces: plain Python, so that it becomes guards.

Everything read here of the module or of a tensor is a guard of the compiled program: if it changes, torch traces
again and the decision is made anew. What cannot be read this way keeps the original.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch

from ..runner.pytorch.tensors import DTYPES
from .contract import Contract
from .guard import Guard

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _exporting() -> bool:
    return bool(torch.compiler.is_exporting())


def constant(function: Callable[[], bool]) -> Callable[[], bool]:
    """`torch.compiler.assume_constant_result`, which is this line behind an import of the whole compiler: a second that
    a program without `torch.compile` need not wait."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


# Asked while tracing but not traced: there, torch before 2.13 calls every compilation an export.
_is_exporting = constant(_exporting)

#: Path to a submodule, attribute, value; and per tensor: dtype, then per axis a fixed size or an expression.
Attribute = tuple[tuple[str, ...], str, Any]
Axis = tuple[int, Any]


class Traced:
    """Decides for one class. Everything it holds is immutable, for the tracer's sake."""

    def __init__(self, contract: Contract, guard: Guard, parameters: list[str]) -> None:
        self.names = tuple(parameters[: len(contract.user_inputs)])
        self.paths = tuple(tuple(path.split(".")) for path in contract.paths)
        self.order = tuple(contract.order)
        self.target = contract.target
        self.dtypes = tuple(DTYPES[value["spec"]["dtype"]] for value in contract.inputs)
        self.shapes = tuple(tuple(value["spec"]["shape"]) for value in contract.inputs)
        self.max_elements = contract.max_elements
        self.min_elements = contract.min_elements
        self.in_compiled = contract.in_compiled
        self.in_export = contract.in_export
        self.operator = guard.operator
        self.cls = guard.cls
        self.single = len(contract.outputs) == 1
        self.users = len(contract.user_inputs)
        simple = contract.call["args"] == [{"input": name} for name in contract.user_inputs]
        contiguous = all(value["spec"].get("strides") is None for value in contract.inputs)
        literals = _literals(contract.attributes)
        self.possible = simple and not contract.call.get("kwargs") and contiguous and literals is not None
        self.attributes: tuple[Attribute, ...] = tuple(literals or ())
        self.children = tuple(tuple(path.split(".")) for path in contract.attributes if path)
        self.equal, self.fixed, self.bounds = _axes(self.shapes, contract.ranges)
        self.possible = self.possible and self.equal is not None

    def wants(self) -> bool:
        """Whether kernels are to be used in what is being traced."""
        return self.possible and (self.in_export if _is_exporting() else self.in_compiled)

    def inputs(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The tensors of this call in the order of the operator, or None where the original has to be traced."""
        if len(args) + len(kwargs) != self.users or type(module) is not self.cls:
            return None
        tensors = list(args)
        for name in self.names[len(args) :]:
            if name not in kwargs:
                return None
            tensors.append(kwargs[name])
        if torch.is_autocast_enabled(self.target) or not self._same(module):
            return None
        tensors += [_walk(module, path) for path in self.paths]
        if not self._fits(tensors):
            return None
        return [tensors[index] for index in self.order]

    def _same(self, module: Any) -> bool:
        for path, key, value in self.attributes:
            found = getattr(_walk(module, path), key, _walk)
            if type(found) is not type(value) or found != value:
                return False
        for path in self.children:
            child = _walk(module, path)
            if len(child._forward_hooks) or len(child._forward_pre_hooks):
                return False
        return True

    def _fits(self, tensors: list[Any]) -> bool:
        for tensor, dtype, shape in zip(tensors, self.dtypes, self.shapes, strict=True):
            if not isinstance(tensor, torch.Tensor) or tensor.dtype != dtype or tensor.dim() != len(shape):
                return False
            if tensor.device.type != self.target or not tensor.is_contiguous():
                return False
            if torch.is_grad_enabled() and tensor.requires_grad:
                return False
            if tensor.numel() > self.max_elements:
                return False
        return self._sized(tensors)

    def _sized(self, tensors: list[Any]) -> bool:
        for index, axis, size in self.fixed:
            if tensors[index].shape[axis] != size:
                return False
        for one, two in self.equal or ():
            if tensors[one[0]].shape[one[1]] != tensors[two[0]].shape[two[1]]:
                return False
        for index, axis, low, high in self.bounds:
            size = tensors[index].shape[axis]
            if size < low or (high is not None and size > high):
                return False
        if self.min_elements == 0:
            return True
        return any(tensor.numel() >= self.min_elements for tensor in tensors[: self.users])


def _walk(module: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        module = getattr(module, name)
    return module


def _literals(attributes: dict[str, dict[str, str]]) -> list[Attribute] | None:
    """Attributes as values to compare; None where one is not a plain value."""
    found: list[Attribute] = []
    for path, values in attributes.items():
        for key, text in values.items():
            if key.startswith("("):
                continue
            try:
                found.append((tuple(path.split(".")) if path else (), key, ast.literal_eval(text)))
            except (ValueError, SyntaxError):
                return None
    return found


def _axes(
    shapes: tuple[tuple[str, ...], ...], ranges: dict[str, list[int | None]]
) -> tuple[Any, tuple[tuple[int, int, int], ...], tuple[tuple[int, int, int, int | None], ...]]:
    """Pairs of axes that must be equal, axes of a fixed size, axes with bounds; the pairs are None where a size is an
    expression."""
    first: dict[str, tuple[int, int]] = {}
    equal, fixed = [], []
    for index, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            if size.isdigit():
                fixed.append((index, axis, int(size)))
            elif not size.isidentifier():
                return None, (), ()
            elif size in first:
                equal.append((first[size], (index, axis)))
            else:
                first[size] = (index, axis)
    bounds = [(*place, ranges[name][0] or 0, ranges[name][1]) for name, place in first.items() if name in ranges]
    return tuple(equal), tuple(fixed), tuple(bounds)
