"""Decides, while `torch.compile` or `torch.export` traces, whether the kernels replace `forward`. The checks are those
of guard.py in plain Python, which the tracer turns into guards of the compiled program.

If an attribute or a tensor that is read here changes, torch traces again and the decision is made anew. If a condition
cannot be checked this way, the original runs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, ParamSpec

import torch

from ..runner.pytorch.tensors import DTYPES
from .contract import Contract
from .guard import Guard

_P = ParamSpec("_P")


def _exporting() -> bool:
    return bool(torch.compiler.is_exporting())


def constant(function: Callable[_P, bool]) -> Callable[_P, bool]:
    """Marks `function` so that the tracer takes its result as a constant, and returns it. This is what
    `torch.compiler.assume_constant_result` does, but that imports the whole compiler, which would cost a program that
    does not use `torch.compile` a second."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


# Called while tracing but not traced itself: in a trace, torch before 2.13 calls every compilation an export.
_is_exporting = constant(_exporting)

#: Path to a submodule, attribute, value; and per tensor: dtype, then per axis a fixed size or an expression.
Attribute = tuple[tuple[str, ...], str, Any]
Axis = tuple[int, Any]


class TracedGuard:
    """Decides, while torch traces a program, whether the kernels may serve a call of one class; it repeats the checks
    of `guard` in plain Python. `parameters` are the names of the parameters of `forward`. All its attributes are
    immutable, because the tracer reads them."""

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
        """Whether the program that is being traced may use the kernels at all: as set for compiled and for exported
        programs, and only if all conditions can be checked while tracing."""
        return self.possible and (self.in_export if _is_exporting() else self.in_compiled)

    def inputs(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the list of this call's tensors in the order of the operator's arguments, or a short text with the
        reason why the original `forward` has to be traced."""
        if len(args) + len(kwargs) != self.users:
            return "arguments"
        if type(module) is not self.cls:
            return "subclass"
        tensors = list(args)
        for name in self.names[len(args) :]:
            if name not in kwargs:
                return "arguments"
            tensors.append(kwargs[name])
        if torch.is_autocast_enabled(self.target):
            return "autocast"
        reason = self._differs(module)
        if reason:
            return reason
        tensors += [_walk(module, path) for path in self.paths]
        reason = self._unfit(tensors)
        if reason:
            return reason
        return [tensors[index] for index in self.order]

    def _differs(self, module: Any) -> str:
        for path, key, value in self.attributes:
            current = getattr(_walk(module, path), key, _walk)
            if current is _walk and key.startswith("_"):
                continue  # a library's mark, as in `same_attributes`
            if type(current) is not type(value) or current != value:
                return "attributes"
        for path in self.children:
            child = _walk(module, path)
            if len(child._forward_hooks) or len(child._forward_pre_hooks):
                return "hooks"
        return ""

    def _unfit(self, tensors: list[Any]) -> str:
        for tensor, dtype, shape in zip(tensors, self.dtypes, self.shapes, strict=True):
            if not isinstance(tensor, torch.Tensor):
                return "tensor type"
            if tensor.dtype != dtype:
                return "dtype"
            if tensor.dim() != len(shape):
                return "shape"
            if tensor.device.type != self.target:
                return "device"
            if not tensor.is_contiguous():
                return "strides"
            if torch.is_grad_enabled() and tensor.requires_grad:
                return "gradient"
            if tensor.numel() > self.max_elements:
                return "size"
        return "" if self._sized(tensors) else "size"

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
    """Returns the module's attributes as tuples (path of the submodule, name, value), to compare with; None if one of
    them is not a Python literal."""
    literals: list[Attribute] = []
    for path, values in attributes.items():
        for key, text in values.items():
            if key == "(script)":
                return None
            if key.startswith("("):
                continue
            try:
                literals.append((tuple(path.split(".")) if path else (), key, ast.literal_eval(text)))
            except (ValueError, SyntaxError):
                return None
    return literals


def _axes(
    shapes: tuple[tuple[str, ...], ...], ranges: dict[str, list[int | None]]
) -> tuple[Any, tuple[tuple[int, int, int], ...], tuple[tuple[int, int, int, int | None], ...]]:
    """Returns three tuples for the symbolic shapes of the inputs: pairs of axes, each axis as (input, axis), whose
    sizes must be equal; fixed sizes as (input, axis, size); bounded sizes as (input, axis, lowest, highest). The first
    is None if a size is an expression such as `2*n`."""
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
    bounds = [(*position, ranges[name][0] or 0, ranges[name][1]) for name, position in first.items() if name in ranges]
    return tuple(equal), tuple(fixed), tuple(bounds)
