"""Lists operators of torch by name. Each has a function that writes a call of the operator for a value of a given
shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import nn

from kernel_assistant_training.tasks.candidates.arguments import (
    GIVEN,
    OPTIONAL,
    CannotBuild,
    Extra,
    Value,
    argument,
    tensor,
)
from kernel_assistant_training.tasks.candidates.schemas import functional_schemas, operands
from kernel_assistant_training.tasks.records import Source

#: Modules that are containers, and functions that do not compute tensors.
_CONTAINERS = ("Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Module")
_NO_OPERATOR = frozenset(
    "backward clone cpu cuda data_ptr detach dim element_size fill get_device has_names is_floating_point item numpy "
    "record_stream rename requires_grad retain_grad storage to tolist type detach_copy is_set_to is_complex bernoulli "
    "multinomial dropout alpha_dropout feature_dropout feature_alpha_dropout native_dropout handle_torch_function "
    "has_torch_function has_torch_function_unary has_torch_function_variadic assert_int_or_pair "
    "boolean_dispatch".split()
)
#: Operators for integers or complex numbers only, or with the same result for all finite floating values.
_NOT_FOR_FLOATS = frozenset(
    "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift gcd lcm chalf conj "
    "conj_physical resolve_conj resolve_neg real positive isfinite isinf isnan isposinf isneginf isreal".split()
)


@dataclass(frozen=True)
class Use:
    """A call of an operator for a certain value. `call` is its source, with placeholders {x} for the value, {self} for
    the module and {0}, {1}, … for the further inputs `extra`. `init` is the source that makes the module, "" without a
    module."""

    operator: str
    source: Source
    call: str
    init: str = ""
    extra: tuple[Extra, ...] = ()
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operator:
    """An operator of a package. `write` returns a Use (a call) for a value, or raises CannotBuild. `rank` is the number
    of dimensions that its input must have, 0 for any."""

    name: str
    source: Source
    write: Callable[[Value, Random], Use]
    rank: int = 0


def torch_operators() -> list[Operator]:
    """Returns all operators of `torch.nn`, of `torch.nn.functional`, and tensor methods that have schemas."""
    return [*modules(), *functions(), *methods()]


def modules() -> Iterator[Operator]:
    for name in sorted(dir(nn)):
        kind = getattr(nn, name)
        if inspect.isclass(kind) and issubclass(kind, nn.Module) and name not in _CONTAINERS and "Lazy" not in name:
            yield Operator(f"torch.nn.{name}", "torch.nn", _module(kind, f"nn.{name}", "torch.nn"), _rank(name))


def functions() -> Iterator[Operator]:
    for name in sorted(dir(nn.functional)):
        function = getattr(nn.functional, name)
        if name.startswith("_") or name.endswith("_") or name in _NO_OPERATOR or inspect.isclass(function):
            continue
        if callable(function) and not inspect.ismodule(function) and (name.islower() or "_" in name):
            yield Operator(f"torch.nn.functional.{name}", "torch.nn.functional", _function(function, name), _rank(name))


def methods() -> Iterator[Operator]:
    for name in sorted(dir(torch.Tensor)):
        if name.startswith("_") or name.endswith("_") or name in _NO_OPERATOR | _NOT_FOR_FLOATS:
            continue
        schemas = functional_schemas(name)
        for schema in schemas:
            overload = f".{schema.overload_name}" if len(schemas) > 1 and schema.overload_name else ""
            yield Operator(f"torch.Tensor.{name}{overload}", "torch.Tensor", _method(name, schema), _rank(name))


def _module(kind: type[nn.Module], path: str, source: Source) -> Callable[[Value, Random], Use]:
    def write(value: Value, random: Random) -> Use:
        words = arguments_of(kind.__init__, value, random)
        extra = forward_extra(kind, value, random)
        cast = "" if value.dtype == "float32" else f".to(torch.{value.dtype})"
        operands = "".join(f", {{{index}}}" for index in range(len(extra)))
        return Use(
            f"torch.{path}", source, f"{{self}}({{x}}{operands})", f"{path}({', '.join(words)}){cast}", tuple(extra)
        )

    return write


def _function(function: Any, name: str) -> Callable[[Value, Random], Use]:
    def write(value: Value, random: Random) -> Use:
        whole = f"torch.nn.functional.{name}"
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:
            return _by_schema(whole, "torch.nn.functional", name, f"F.{name}({{x}}", value, random)
        if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
            return _by_schema(whole, "torch.nn.functional", name, f"F.{name}({{x}}", value, random)
        words: list[str] = []
        extra: list[Extra] = []
        for one in parameters[1:]:
            try:
                literal = _tensor_or_literal(one, value, random, extra)
            except CannotBuild:
                if one.default is one.empty:
                    raise
                continue
            if literal is not None:
                words.append(f"{one.name}={literal}")
        return Use(whole, "torch.nn.functional", f"F.{name}({', '.join(['{x}', *words])})", "", tuple(extra))

    return write


def _tensor_or_literal(one: inspect.Parameter, value: Value, random: Random, extra: list[Extra]) -> str | None:
    required = one.default is one.empty
    if required and "Tensor" in str(one.annotation):
        extra.append(tensor(one.name, value, random))
        return f"{{{len(extra) - 1}}}"
    return _written(one, value, random)


def _by_schema(name: str, source: Source, aten: str, head: str, value: Value, random: Random) -> Use:
    schemas = functional_schemas(aten)
    if not schemas:
        raise CannotBuild("no signature and no schema")
    words, extra = operands(random.choice(schemas), value, random)
    return Use(name, source, f"{', '.join([head, *words])})", "", tuple(extra))


def _method(name: str, schema: Any) -> Callable[[Value, Random], Use]:
    def write(value: Value, random: Random) -> Use:
        words, extra = operands(schema, value, random)
        return Use(f"torch.Tensor.{name}", "torch.Tensor", f"{{x}}.{name}({', '.join(words)})", "", tuple(extra))

    return write


def arguments_of(function: Any, value: Value, random: Random) -> list[str]:
    """Returns the source of each argument of a constructor, without self, for an input `value`. Leaves optional
    arguments out at random. Raises CannotBuild if a required argument has no rule."""
    words = []
    for one in list(inspect.signature(function).parameters.values())[1:]:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        literal = _written(one, value, random)
        if literal is not None:
            words.append(f"{one.name}={literal}")
    return words


def forward_extra(kind: type[nn.Module], value: Value, random: Random) -> list[Extra]:
    """Returns the required tensors of `forward` after its first tensor. Raises CannotBuild if there is no first tensor,
    or no rule for one of the others."""
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    needed = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if not needed:
        raise CannotBuild("forward takes no tensor")
    return [tensor(one.name, value, random) for one in needed[1:]]


def _written(one: inspect.Parameter, value: Value, random: Random) -> str | None:
    """Returns the source of a value for the argument `one`, or None to leave the argument out. Raises CannotBuild if a
    required argument has no rule."""
    if one.default is one.empty or one.name in GIVEN:
        return repr(argument(one.name, value, random))
    rule = OPTIONAL.get(one.name)
    return repr(rule(value, random)) if rule is not None and random.random() < 0.4 else None


def _rank(name: str) -> int:
    """Returns the number of dimensions of the inputs that an operator requires, from its name: 3 for `…1d`, 4 for
    `…2d`, 5 for `…3d`, else 0 (any)."""
    end = name.lower()[-2:]
    return {"1d": 3, "2d": 4, "3d": 5}.get(end, 0)
