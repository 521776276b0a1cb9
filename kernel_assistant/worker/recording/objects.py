"""Names the arguments of a call that no kernel accepts, such as caches and other objects, with their classes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: The same types as in `worker/user_module/inputs.py`, which refuses all others when such a call is opened.
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)
MOST = 4


def objects_of(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """Returns a text such as `past_key_values is a DynamicCache` for each argument that no kernel accepts; at most
    `MOST` texts."""
    objects = dict.fromkeys(
        f"{name}{path} is a {kind}"
        for name, value in (*_positional(type(module), args), *kwargs.items())
        for path, kind in _inside(value)
    )
    return tuple(objects)[:MOST]


def _positional(cls: type, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yields (name of the parameter of `forward`, value) for each positional argument; "argument INDEX" is the name of
    those in `*args`."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(cls.forward).parameters.values())[1:]  # type: ignore[attr-defined]
    names = [one.name for one in parameters if one.kind in kinds]
    for index, value in enumerate(args):
        yield names[index] if index < len(names) else f"argument {index}", value


def _inside(value: Any) -> Iterator[tuple[str, str]]:
    """Yields (path from `value`, name of the object's class) for each object inside `value` that no kernel accepts."""
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        prefix = "".join(map(str, path))
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                for inner, kind in _inside(getattr(leaf, field.name, None)):
                    yield f"{prefix}.{field.name}{inner}", kind
        elif not isinstance(leaf, (torch.Tensor, *_PLAIN)):
            yield prefix, type(leaf).__name__
