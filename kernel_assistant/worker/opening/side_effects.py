"""Detects side effects of the user's forward that kernels would not have: prints, files, programs, and changes of state
other than the module's tensors.

Only what the call itself does through Python is detected: not what native code writes, nor what a thread does later,
nor a change deep inside an object. A first call is not watched: it may prepare a cache or print a warning once.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..process.worker_errors import heard_prints

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NO_FILES = ("/dev/", "/proc/")
#: Attributes that `torch.nn.Module` creates itself.
_OF_TORCH = frozenset(vars(torch.nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
#: Where the audit hook, which cannot be removed, records effects; empty outside of `watched`.
_listeners: list[dict[str, None]] = []


@contextlib.contextmanager
def watched(model: torch.nn.Module, effects: list[str]) -> Iterator[None]:
    """Appends to `effects`, at the end of the block, the side effects of the block, which calls `model`: texts such as
    "prints", "writes FILE", "changes self.count", in this order."""
    before, events = _state(model), dict[str, None]()
    _hook()
    _listeners.append(events)
    try:
        with heard_prints() as prints:
            yield
    finally:
        _listeners.pop()
    after = _state(model)
    changed = [name for name, value in after.items() if name not in before or not _same(before[name], value)]
    effects += (["prints"] if prints else []) + list(events) + [f"changes {name}" for name in changed]


def _state(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the state that a call may change: name → mark (`_mark`) of each global of the class's file, and of each
    attribute of all submodules except submodules, parameters and buffers."""
    forward = inspect.unwrap(type(model).forward)
    state = {f"the global {name}": _mark(value) for name, value in getattr(forward, "__globals__", {}).items()}
    for path, module in model.named_modules():
        owner = ".".join(["self", path] if path else ["self"])
        own = {name: value for name, value in vars(module).items() if name not in _OF_TORCH}
        state |= {f"{owner}.{name}": _mark(value) for name, value in own.items()}
    return state


def _mark(value: Any) -> tuple[Any, Any]:
    """Returns the value, and a number that differs after the value was changed in place: the version of a tensor, the
    length of a list, dict or set; None for other values."""
    if isinstance(value, torch.Tensor):
        return value, value._version
    return value, len(value) if isinstance(value, (list, dict, set)) else None


def _same(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    if one[0] is other[0]:
        return bool(one[1] == other[1])
    return type(one[0]) is type(other[0]) and isinstance(one[0], _PLAIN) and one[0] == other[0]


def _hook() -> None:
    global _hooked  # noqa: PLW0603 - once in a process
    if not _hooked:
        _hooked = True
        sys.addaudithook(_on_audit_event)


_hooked = False


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    if _listeners and event in _EFFECTS:
        effect = _EFFECTS[event](*arguments)
        if effect:
            _listeners[-1][effect] = None


def _opened(path: Any, mode: Any, flags: Any) -> str:
    name = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
    writes = isinstance(flags, int) and flags & _WRITES
    return f"writes {name}" if name and writes and not name.startswith(_NO_FILES) else ""


_EFFECTS: dict[str, Callable[..., str]] = {
    "open": _opened,
    "os.remove": lambda path, *rest: f"removes {os.fsdecode(path)}",
    "os.rename": lambda path, *rest: f"renames {os.fsdecode(path)}",
    "os.mkdir": lambda path, *rest: f"makes the folder {os.fsdecode(path)}",
    "subprocess.Popen": lambda program, *rest: f"starts {program}",
    "socket.connect": lambda socket, address: f"connects to {address}",
}
