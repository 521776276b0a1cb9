"""What a module is besides its tensors: its attributes as comparable text.

The judge notes them at verification, an applied package compares them later: a kernel has constants such as `eps`
baked in. Both use this file.
"""

from __future__ import annotations

import enum
import functools
import types
from typing import Any

import torch

#: Everything that `nn.Module.__init__` sets up itself, but for the training flag, which is state like any other.
INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}

_LITERAL = (type(None), bool, int, float, complex, str, bytes)
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_TORCH = (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)


def freeze(value: Any, depth: int = 4) -> str:
    """Text that is equal for equal values. 1, 1.0 and True differ; tensors count by dtype and shape only.

    Functions and classes go by name, other objects by type and attributes, at most `depth` levels down.
    """
    if isinstance(value, _TORCH) or type(value) in _LITERAL:
        return repr(value)
    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {tuple(value.shape)}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, functools.partial):
        return f"partial {freeze(value.func, depth)} {freeze(value.args, depth)} {freeze(value.keywords, depth)}"
    if callable(value) and (isinstance(value, _NAMED) or not hasattr(value, "__dict__")):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    if depth == 0 or isinstance(value, torch.nn.Module):
        return type(value).__qualname__
    return _freeze_container(value, depth - 1)


def _freeze_container(value: Any, depth: int) -> str:
    if isinstance(value, (tuple, list)):
        inner = ", ".join(freeze(item, depth) for item in value)
        if type(value) in (tuple, list):
            return f"[{inner}]" if type(value) is list else f"({inner}{',' if len(value) == 1 else ''})"
        return f"{type(value).__qualname__}({inner})"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(freeze(item, depth) for item in value)) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{freeze(key, depth)}: {freeze(item, depth)}" for key, item in value.items()) + "}"
    return type(value).__qualname__ + freeze(dict(getattr(value, "__dict__", {})), depth)


def is_atomic(value: Any) -> bool:
    """Whether the value cannot change without being replaced, so that its identity is enough to watch."""
    if isinstance(value, tuple):
        return all(is_atomic(item) for item in value)
    return isinstance(value, (*_LITERAL, *_NAMED, *_TORCH, enum.Enum, torch.Tensor, torch.nn.Module))


def is_state(key: str) -> bool:
    """Whether an attribute belongs to the user: names with two underscores on both sides are Python's and torch's."""
    return key not in INTERNAL and not (key.startswith("__") and key.endswith("__"))


def module_attributes(module: torch.nn.Module) -> dict[str, dict[str, str]]:
    """Submodule path ("" for the module) → attribute → frozen value, `training` flags included.

    Made up are "(class)", "(parameters)" and "(buffers)"; the latter name those that are not None.
    """
    return {path: submodule_attributes(child) for path, child in module.named_modules(remove_duplicate=False)}


def same_attributes(module: torch.nn.Module, verified: dict[str, dict[str, str]]) -> bool:
    """Whether a module is as it was when `verified` was noted.

    Private attributes that libraries hang on modules since do not count, unless they hide something of the class.
    """
    children = dict(module.named_modules(remove_duplicate=False))
    return children.keys() == verified.keys() and all(
        _same(child, submodule_attributes(child), verified[path]) for path, child in children.items()
    )


def _same(module: torch.nn.Module, found: dict[str, str], verified: dict[str, str]) -> bool:
    added = [key for key in found if key not in verified]
    if any(not key.startswith("_") or hasattr(type(module), key) for key in added):
        return False
    return all(found.get(key) == text for key, text in verified.items())


def submodule_attributes(module: torch.nn.Module) -> dict[str, str]:
    """`module_attributes` of one module without its children."""
    state = vars(module)
    found = {key: freeze(value) for key, value in state.items() if is_state(key)}
    found["(class)"] = type(module).__qualname__
    for kind in ("_parameters", "_buffers"):
        found[f"({kind[1:]})"] = ", ".join(sorted(key for key, value in state[kind].items() if value is not None))
        found.update((key, "None") for key, value in state[kind].items() if value is None)
    return found
