"""Reads the constructor arguments of modules from the frames of their `__init__` while it runs."""

from __future__ import annotations

import contextlib
import inspect
import types
import weakref
from typing import Any

import torch

_MOST_FRAMES = 32


class ByIdentity:
    """A mapping from living objects to values that does not keep the objects alive. Objects are compared by identity,
    even if their class redefines equality; `get` returns None for an unknown one."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def get(self, owner: Any) -> Any:
        entry = self._held.get(id(owner))
        return entry[1] if entry is not None and entry[0]() is owner else None

    def put(self, owner: Any, value: Any) -> None:
        key = id(owner)
        self._held[key] = (weakref.ref(owner, lambda _: self._held.pop(key, None)), value)


class Constructors:
    """Keeps the constructor arguments of modules. `of(module)` returns them, or None if they could not be
    read or kept."""

    def __init__(self) -> None:
        self._arguments = ByIdentity()

    def note(self, module: Any, frame: types.FrameType | None) -> None:
        """Stores the constructor arguments of `module`; `frame` is the caller of `nn.Module.__init__`. Never raises."""
        with contextlib.suppress(Exception):
            arguments = _arguments(module, frame)
            if arguments is not None:
                self._arguments.put(module, arguments)

    def of(self, module: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = self._arguments.get(module)
        return arguments


def _arguments(module: Any, frame: types.FrameType | None) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Returns (args, kwargs) of the class's own `__init__`, read from its frame while it calls its parent's `__init__`;
    None if the frame is not found or the arguments contain tensors or modules. `frame` is the caller of
    `nn.Module.__init__`."""
    function = inspect.unwrap(type(module).__init__)
    wanted = getattr(function, "__code__", None)
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_code.co_name != "__init__":
            return None
        if frame.f_code is wanted:
            values = frame.f_locals
            if values.get(frame.f_code.co_varnames[0]) is not module:
                return None
            return _read(frame.f_code, values)
        frame = frame.f_back
    return None


def _read(code: types.CodeType, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    names = code.co_varnames
    positional, keyword = code.co_argcount, code.co_kwonlyargcount
    args = [values[name] for name in names[1:positional]]
    kwargs = {name: values[name] for name in names[positional : positional + keyword]}
    rest = positional + keyword
    if code.co_flags & inspect.CO_VARARGS:
        args += values[names[rest]]
        rest += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= values[names[rest]]
    if any(_is_heavy(value) for value in [*args, *kwargs.values()]):
        return None
    return tuple(map(_copied, args)), {name: _copied(value) for name, value in kwargs.items()}


def _is_heavy(value: Any) -> bool:
    """Whether a value is or contains tensors or modules. Storing such an argument would keep them alive; instead the
    module that is being constructed is itself saved later."""
    items = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else [value]
    return any(isinstance(item, (torch.Tensor, torch.nn.Module)) for item in items)


def _copied(value: Any) -> Any:
    """Returns a shallow copy of a list, dict or set, which the program may change after the call; other values as they
    are."""
    return value.copy() if type(value) in (list, dict, set) else value
