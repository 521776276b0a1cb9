"""The class decorator of an edited file: gives the class a `forward` that checks each call and runs the kernels if they
may serve it. Returns the same class object."""

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
from ..runner.locks import ForkSafeLock
from .calls import CallPattern, result_builder
from .compiled import TracedGuard, constant
from .contract import Contract, StateUpdate, read_contract
from .fingerprint import fingerprint
from .guard import Guard
from .parts import Parts, sizes_of
from .report import report_at_exit

Class = TypeVar("Class", bound=type)

#: Guards of this package by class name; each load of the user's file adds those of a new class object.
_guards: dict[str, list[Guard]] = {}
_unused: dict[str, str] = {}
_lock = ForkSafeLock()
#: `kernel-assistant compare` runs a program without its kernels by this variable.
_switch = {"enabled": os.environ.get("KERNEL_ASSISTANT_KERNELS", "") != "off"}
#: Errors of reading a package or finding its class; the original is then kept.
_UNUSABLE = (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, CudaError)


def accelerated(name: str, source: str = "") -> Callable[[Class], Class]:
    """Returns a class decorator. With it, `forward` runs the kernels of the class `name` in this package for every call
    for which they were verified, and the original code for all others.

    `source` is the file of the class, by default the caller's. Never raises: if the kernels cannot be used it warns
    once and leaves the class as it is."""
    source = source or sys._getframe(1).f_globals.get("__file__", "")
    report_at_exit(_folder(), counters, reset_counters)

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
    """Puts the `forward` that runs kernels where it can into the class `name` of an installed `module`; a second call
    does nothing.

    Never raises: if the kernels cannot be used it warns once and leaves the class as it is."""
    report_at_exit(_folder(), counters, reset_counters)
    try:
        home = importlib.import_module(module)
        cls = getattr(home, name)
        if not any(guard.cls is cls for guard in _guards.get(name, ())):
            _install(cls, name, str(home.__file__))
    except _UNUSABLE as error:
        _unused[name] = f"{type(error).__name__}: {error}"
        message = f"{module}.{name}: the original runs, not its kernels: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def kernels_only(name: str, *, as_verified: bool = False) -> Callable[[Any], Any]:
    """Returns a decorator of `forward` for an exported file, which has no original: it runs the kernels or raises
    RuntimeError.

    With `as_verified` a call that autograd would record runs the kernels too, without gradients, and the module is put
    into the mode in which it was verified (training or not). Raises OSError or ValueError if the package cannot be
    read."""
    contract = read_contract(Parts(_folder(), name))
    training = contract.attributes.get("", {}).get("training") == "True"

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
            outputs = guard.outputs(self, args, kwargs)
            if isinstance(outputs, str):
                raise RuntimeError(f"the kernels of {name} were not verified for this call: {outputs}")
            return build(outputs)

        @functools.wraps(forward)
        @torch.no_grad()
        def run_as_verified(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.training is not training:
                self.train(training)
            return run(self, *args, **kwargs)

        return run_as_verified if as_verified else run

    return decorate


def counters() -> dict[str, dict[str, Any]]:
    """Returns, for each class, a dict: `kernel`, the number of calls that ran the kernels; `fallbacks`, reason → number
    of calls; and `unused`, an error message, if the kernels could not be installed."""
    with _lock:
        classes: dict[str, dict[str, Any]] = {name: {"kernel": 0, "fallbacks": {}} for name in (*_guards, *_unused)}
        for name, guards in _guards.items():
            for guard in guards:
                classes[name]["kernel"] += guard.kernel_calls()
                for reason, count in guard.fallbacks.copy().items():
                    classes[name]["fallbacks"][reason] = classes[name]["fallbacks"].get(reason, 0) + count
        for name, cause in _unused.items():
            classes[name]["unused"] = cause
    return classes


def reset_counters() -> None:
    """Sets all counters of this package to zero."""
    with _lock:
        for guards in _guards.values():
            for guard in guards:
                guard.reset()


def set_enabled(enabled: bool) -> None:
    """Switches all kernels of this package off or on again, to compare with the original. Does not affect programs that
    are already compiled."""
    _switch["enabled"] = enabled


def _install(cls: type, name: str, source: str) -> None:
    """Installs all kernels of a class, with one guard (the check before each call) for each size of its instances. A
    guard passes calls that it refuses to the next inner guard, and the innermost one to the original `forward`."""
    parts = Parts(_folder(), name)
    contracts = [read_contract(parts, size) for size in sizes_of(parts)]
    forward = cls.forward  # type: ignore[attr-defined]
    if not inspect.isfunction(forward):
        raise TypeError(f"forward of {cls.__qualname__} is not a plain function")
    guards: list[Guard] = []
    for contract in contracts:
        _check_source(contract, source)
        guard = Guard(contract, cls, CallPattern(forward, contract.call, contract.user_inputs), outer=bool(guards))
        traced = TracedGuard(contract, guard, list(inspect.signature(forward).parameters)[1:])
        build = result_builder(contract.call["result"], inspect.unwrap(forward).__globals__)
        forward = _guarded(forward, guard, traced, build)
        guards.append(guard)
    cls.forward = forward  # type: ignore[attr-defined]
    with _lock:
        _guards.setdefault(name, []).extend(guards)


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
    """Returns the folder of the package: that of this file, because a package has all its modules in one file."""
    return os.path.dirname(os.path.abspath(__file__))


def _guarded(
    original: types.FunctionType, guard: Guard, traced: TracedGuard, build: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Returns a `forward` that asks the guard first and calls `original` if it refuses. It uses closure variables only:
    its globals are those of the original, because `torch.jit.script` compiles the original's text with the names that
    it finds there."""
    is_compiling, run, switch = torch.compiler.is_compiling, guard.run, _switch
    moved, left = StateUpdate(guard.contract.state), _left(guard)
    wants, inputs, operator, single, usable = (
        traced.wants,
        traced.inputs,
        traced.operator,
        traced.single,
        _usable(guard),
    )

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            tensors = inputs(self, args, kwargs) if wants() and usable() else "not served"
            if isinstance(tensors, list):
                result = operator(*tensors)
                outputs = (result,) if single else result
                moved.on(self, outputs)
                return build(outputs)
            left(tensors)
            return original(self, *args, **kwargs)
        if switch["enabled"]:
            outputs = run(self, args, kwargs)
            if outputs is not None:
                return build(outputs)
        return original(self, *args, **kwargs)

    placed = types.FunctionType(forward.__code__, original.__globals__, "forward", None, forward.__closure__)
    return functools.wraps(original)(placed)


def _left(guard: Guard) -> Callable[[str], bool]:
    """Returns a function that counts a fallback (a call that runs the original) of a compiled program for a reason. It
    runs once, while the program is compiled; the calls of the compiled program cannot be counted."""

    def left(reason: str) -> bool:
        guard.left(f"compiled: {reason}")
        return True

    return constant(left)


def _usable(guard: Guard) -> Callable[[], bool]:
    """Returns a function that says whether kernels are switched on and the binary can be loaded on the current device.
    The tracer takes its result as a constant."""

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
