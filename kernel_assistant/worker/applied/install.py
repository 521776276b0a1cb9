"""The class decorator: puts a guarded `forward` into the class, which stays the same object."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..runner.cuda_driver import CudaError
from .calls import CallPattern, result_builder
from .compiled import Traced, constant
from .contract import Contract, kernel_folders, read_contract
from .fingerprint import fingerprint
from .guard import Guard
from .locks import ForkSafeLock
from .report import report_at_exit
from .state import Moved

Class = TypeVar("Class", bound=type)

#: Guards of this package by class name; one class object each time the user's file is loaded.
_guards: dict[str, list[Guard]] = {}
_unused: dict[str, str] = {}
_lock = ForkSafeLock()
_switch = {"enabled": True}
#: What reading a package or finding its class may raise: the original then stays.
_UNUSABLE = (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, CudaError)


def accelerated(name: str) -> Callable[[Class], Class]:
    """Class decorator: `forward` runs the kernels of the folder `name` wherever they were verified for the call.

    Never raises: where the kernels cannot be used it warns once and leaves the class as it is.
    """
    source = sys._getframe(1).f_globals.get("__file__", "")

    def decorate(cls: Class) -> Class:
        try:
            _install(cls, name, source)
        except _UNUSABLE as error:
            _unused[name] = f"{type(error).__name__}: {error}"
            message = f"{name}: the original runs, not its kernels: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return cls

    return decorate


def replaced(name: str, module: str) -> None:
    """Put the guarded `forward` into the class `name` of an installed `module`; a second time does nothing.

    Never raises: where the kernels cannot be used it warns once and leaves the class as it is.
    """
    try:
        home = importlib.import_module(module)
        cls = getattr(home, name)
        if not any(guard.cls is cls for guard in _guards.get(name, ())):
            _install(cls, name, str(home.__file__))
    except _UNUSABLE as error:
        _unused[name] = f"{type(error).__name__}: {error}"
        message = f"{module}.{name}: the original runs, not its kernels: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def kernels_only(name: str) -> Callable[[Any], Any]:
    """Decorator of `forward` in an exported file: the kernels or a RuntimeError, there is no original.

    Raises OSError or ValueError where the package cannot be read.
    """
    contract = read_contract(os.path.join(_folder(), name))

    def decorate(forward: Callable[..., Any]) -> Callable[..., Any]:
        build = result_builder(contract.call["result"], forward.__globals__)
        pattern = CallPattern(forward, contract.call, contract.user_inputs)
        guards: dict[type, Guard] = {}

        @functools.wraps(forward)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            guard = guards.get(type(self))
            if guard is None:
                guard = guards.setdefault(type(self), Guard(contract, type(self), pattern))
                with _lock:
                    _guards.setdefault(name, []).append(guard)
            found = guard.outputs(self, args, kwargs)
            if isinstance(found, str):
                raise RuntimeError(f"the kernels of {name} were not verified for this call: {found}")
            return build(found)

        return run

    return decorate


def counters() -> dict[str, dict[str, Any]]:
    """Per class: `kernel`, the number of calls that ran the kernels, and `fallbacks`, reason → number of calls."""
    with _lock:
        found: dict[str, dict[str, Any]] = {name: {"kernel": 0, "fallbacks": {}} for name in (*_guards, *_unused)}
        for name, guards in _guards.items():
            for guard in guards:
                found[name]["kernel"] += guard.kernel_calls()
                for reason, count in guard.fallbacks.copy().items():
                    found[name]["fallbacks"][reason] = found[name]["fallbacks"].get(reason, 0) + count
        for name, cause in _unused.items():
            found[name]["unused"] = cause
    return found


def reset_counters() -> None:
    """All counters back to zero."""
    with _lock:
        for guards in _guards.values():
            for guard in guards:
                guard.reset()


def set_enabled(enabled: bool) -> None:
    """Switch all kernels of this package off or on again, to compare with the original. Not for compiled programs."""
    _switch["enabled"] = enabled


def _install(cls: type, name: str, source: str) -> None:
    """All kernels of a class: one guard around the other, each with what is inside it as its original."""
    contracts = [read_contract(folder) for folder in kernel_folders(os.path.join(_folder(), name))]
    forward = cls.forward  # type: ignore[attr-defined]
    if not inspect.isfunction(forward):
        raise TypeError(f"forward of {cls.__qualname__} is not a plain function")
    guards: list[Guard] = []
    for contract in contracts:
        _check_source(contract, source)
        guard = Guard(contract, cls, CallPattern(forward, contract.call, contract.user_inputs), outer=bool(guards))
        traced = Traced(contract, guard, list(inspect.signature(forward).parameters)[1:])
        build = result_builder(contract.call["result"], inspect.unwrap(forward).__globals__)
        forward = _guarded(forward, guard, traced, build)
        guards.append(guard)
    cls.forward = forward  # type: ignore[attr-defined]
    with _lock:
        _guards.setdefault(name, []).extend(guards)
    report_at_exit(_folder(), counters)


def _check_source(contract: Contract, path: str) -> None:
    with open(path, "rb") as file:
        data = file.read()
    text = data.decode(_encoding(data))
    if fingerprint(text, contract.class_name) != contract.fingerprint:
        raise ValueError(
            f"{contract.class_name} in {os.path.basename(path)} has been edited since its kernels were verified; "
            "optimize it again"
        )


def _encoding(data: bytes) -> str:
    import io
    import tokenize

    return tokenize.detect_encoding(io.BytesIO(data).readline)[0]


def _folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _guarded(
    original: types.FunctionType, guard: Guard, traced: Traced, build: Callable[[Any], Any]
) -> Callable[..., Any]:
    """`forward` with the guard in front. Uses closure variables only: its globals are those of the original, because
    `torch.jit.script` compiles the original's text with the names that it finds there."""
    is_compiling, run, switch = torch.compiler.is_compiling, guard.run, _switch
    moved = Moved(guard.contract.state)
    wants, inputs, operator, single, usable = (
        traced.wants,
        traced.inputs,
        traced.operator,
        traced.single,
        _usable(guard),
    )

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            if wants() and usable():
                tensors = inputs(self, args, kwargs)
                if tensors is not None:
                    found = operator(*tensors)
                    outputs = (found,) if single else found
                    moved.on(self, outputs)
                    return build(outputs)
            return original(self, *args, **kwargs)
        if switch["enabled"]:
            outputs = run(self, args, kwargs)
            if outputs is not None:
                return build(outputs)
        return original(self, *args, **kwargs)

    placed = types.FunctionType(forward.__code__, original.__globals__, "forward", None, forward.__closure__)
    return functools.wraps(original)(placed)


def _usable(guard: Guard) -> Callable[[], bool]:
    """Whether the binary can be loaded here. A constant for the tracer: it is a fact of the machine."""

    def usable() -> bool:
        if guard.unavailable or not _switch["enabled"]:
            return False
        if guard.contract.target == "cuda" and not torch.cuda.is_available():
            return False
        try:
            on_host = guard.contract.target == "cpu"
            device = torch.device("cpu") if on_host else torch.device("cuda", torch.cuda.current_device())
            guard.binaries.module(device)
        except (OSError, ValueError, RuntimeError) as error:
            guard.disable("unavailable", str(error))
            return False
        return True

    return constant(usable)
