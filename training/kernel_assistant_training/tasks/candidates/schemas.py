"""Chooses the arguments of builtin functions and tensor methods by their ATen schemas."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from kernel_assistant_training.tasks.candidates.arguments import (
    GIVEN,
    OPTIONAL,
    CannotBuild,
    Extra,
    Value,
    argument,
    tensor,
)

#: Integer arguments by name, where RULES mean something else or have no rule.
_INTEGERS = {"n": 2, "k": 3, "start": 0, "length": 8, "repeats": 2, "step": 1, "chunks": 2, "groups": 2, "steps": 2}
_NUMBERS = (0.3, 0.5, 1.5, 2.0)


def functional_schemas(name: str) -> list[Any]:
    """Returns the schemas of those overloads of `aten::name` that take a tensor first, write to no argument and return
    tensors only."""
    return [
        schema
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if schema.arguments
        and str(schema.arguments[0].type) == "Tensor"
        and schema.returns
        and all(str(one.type) == "Tensor" for one in schema.returns)
        and not any(one.alias_info is not None and one.alias_info.is_write for one in schema.arguments)
        and not any(one.is_out for one in schema.arguments)
    ]


def operands(schema: Any, value: Value, random: Random) -> tuple[list[str], list[Extra]]:
    """Returns the sources of the arguments after the first, with {0}, {1}, … for further tensors, and these further
    tensors. Raises CannotBuild if a required argument has no rule."""
    words: list[str] = []
    extra: list[Extra] = []
    for one in schema.arguments[1:]:
        keyword = one.kwarg_only
        if one.has_default_value():
            rule = OPTIONAL.get(one.name)
            given = one.name in GIVEN or (rule is not None and random.random() < 0.5)
            if not given:
                continue
            kind, keyword = _plain(str(one.type)), True
            try:
                written = _literal(one.name, kind, value, random) if rule is None else repr(rule(value, random))
            except CannotBuild:
                continue
        elif str(one.type) == "Tensor":
            extra.append(tensor(one.name, value, random))
            written = f"{{{len(extra) - 1}}}"
        else:
            written = _literal(one.name, _plain(str(one.type)), value, random)
        words.append(f"{one.name}={written}" if keyword else written)
    return words, extra


def _plain(kind: str) -> str:
    """Returns the name of a type without `Optional`: `Optional[int]` → `int`."""
    return kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind


def _literal(name: str, kind: str, value: Value, random: Random) -> str:
    if kind == "bool":
        return "False"
    if name.startswith("dim") and kind == "int":
        return {"dim0": "1", "dim1": "-1"}.get(name, str(random.choice([-1, 1]) if value.rank > 1 else 0))
    if name.startswith("dim") and kind == "List[int]":
        return "[-1]"
    if kind == "int" and name in _INTEGERS:
        return str(_INTEGERS[name])
    if kind == "List[int]" and name == "shifts":
        return "[3]"
    if kind in ("number", "float"):
        return repr(random.choice(_NUMBERS))
    if kind in ("int", "List[int]", "str") and name not in ("size", "shape", "sizes"):
        literal = argument(name, value, random)
        return repr(list(literal) if isinstance(literal, tuple) else literal)
    raise CannotBuild(f"no rule for argument {name} of type {kind}")
