"""Saves modules and the inputs of some of their calls as files, within limits. `worker/user_module/recorded.py` reads
them."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import types
from collections.abc import Callable
from typing import IO, Any, cast

import torch

from .classes import ObservedClass, ObservedConfiguration, ObservedSignature
from .constructors import Constructors

#: Bytes of one call's tensors, or of one module, that are saved immediately; and those for a class that takes much
#: time.
SMALL = 4 << 20
LARGE_CALL = 64 << 20
LARGE_MODULE = 256 << 20
TOTAL = 1 << 30
MOST_SAMPLES = 3
MOST_CONFIGURATIONS = 8
_STATISTICS_ELEMENTS = 1 << 20


class TooLargeError(Exception):
    """Raised while a file is written, when it would exceed its limit."""


class Samples:
    """Saves modules and inputs to files below `folder`, in one subfolder for each configuration of a class. `bytes` is
    the total so far."""

    def __init__(self, folder: str, constructors: Constructors) -> None:
        self._folder, self._constructors = folder, constructors
        self.bytes = 0

    def keep_inputs(
        self,
        cls: ObservedClass,
        configuration: ObservedConfiguration,
        signature: ObservedSignature,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        matters: bool,
    ) -> None:
        """Saves `call`, the (args, kwargs) of a call before it runs, if there is room, and sets `sample` and `exact`
        (or `refused`) of the signature. If a class takes a considerable share of the time (`matters`), larger tensors
        are saved with their values; other large ones are saved as a description of their values."""
        exact = signature.input_bytes <= (LARGE_CALL if matters else SMALL)
        if signature.refused or (signature.sample >= 0 and (signature.exact or not exact)):
            return
        kept = sum(one.sample >= 0 for one in configuration.signatures.values())
        if signature.sample < 0 and (kept >= MOST_SAMPLES or configuration.number >= MOST_CONFIGURATIONS):
            return
        number = signature.sample if signature.sample >= 0 else kept
        if self._keep(cls, configuration, f"inputs-{number}.pt", call, exact=exact):
            signature.sample, signature.exact = number, exact
        else:
            signature.refused = True

    def keep_module(self, cls: ObservedClass, configuration: ObservedConfiguration, module: Any, matters: bool) -> None:
        """Saves the module, or its constructor arguments if it cannot be pickled or exceeds the limit for its class at
        present (higher if the class `matters`). Notes in `configuration` what was saved and what failed."""
        if configuration.kept == "module" or "module" in configuration.refused:
            return
        if configuration.bytes <= (LARGE_MODULE if matters else SMALL):
            if self._keep(cls, configuration, "module.pt", module, exact=None):
                configuration.kept = "module"
                return
            configuration.refused.append("module")
        if configuration.kept or "init" in configuration.refused:
            return
        arguments = self._constructors.of(module)
        dtypes = {tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()}
        dtype = dtypes.pop() if len(dtypes) == 1 else None
        if arguments is not None and self._keep(cls, configuration, "init.pt", (*arguments, dtype), exact=True):
            configuration.kept = "init"
        else:
            configuration.refused.append("init")

    def _keep(
        self, cls: ObservedClass, configuration: ObservedConfiguration, name: str, value: Any, *, exact: bool | None
    ) -> bool:
        """Writes one file and returns whether that succeeded; if not, notes the reason in the configuration. `exact` is
        None for a module, else whether all tensors are saved with their values."""
        folder = os.path.join(self._folder, folder_name(cls, configuration))
        try:
            if not os.path.isdir(folder):
                os.makedirs(folder, mode=0o700)
                with open(os.path.join(folder, "origin.json"), "w", encoding="utf-8") as file:
                    json.dump({"module": cls.cls.__module__, "main": main_file()}, file)
            self.bytes += _save(os.path.join(folder, name), value, exact, min(2 * LARGE_MODULE, TOTAL - self.bytes))
        except TooLargeError:
            configuration.note(f"{name}: larger than the limit")
        except Exception as error:  # noqa: BLE001 - pickling runs the program's own code, which may raise anything
            lines = str(error).splitlines()
            configuration.note(f"{name}: {type(error).__name__}: {lines[0] if lines else ''}")
        else:
            return True
        return False


def folder_name(cls: ObservedClass, configuration: ObservedConfiguration) -> str:
    return f"c{cls.number}v{configuration.number}"


def main_file() -> str:
    """Returns the file that runs as `__main__`, "" if there is none."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(path) if path else ""


def write_file(path: str, content: bytes) -> None:
    """Writes a file completely or not at all; only the user can read it."""
    draft = f"{path}.new"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(draft, path)


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy on the CPU with the same shape and strides. Of a storage that other tensors share, only the part
    that the tensor spans is copied."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    shape = [1 if stride == 0 and size else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    part = tensor[tuple(slice(0, size) for size in shape)] if shape != list(tensor.shape) else tensor
    span = sum((size - 1) * stride for size, stride in zip(shape, tensor.stride(), strict=True)) + 1
    if part.numel() == 0 or span * tensor.element_size() > 2 * LARGE_CALL:
        return part.to("cpu", copy=True).contiguous().expand(tensor.shape)
    held = torch.empty_strided(shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return held.copy_(part).expand(tensor.shape)


def statistics(tensor: torch.Tensor) -> dict[str, Any]:
    """Returns a dict that describes a large tensor: shape, strides, dtype, and lowest, highest, mean and standard
    deviation of a part of its elements."""
    tensor = tensor.detach()
    described: dict[str, Any] = {
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }
    part = tensor
    while part.numel() > _STATISTICS_ELEMENTS:
        longest = max(range(part.dim()), key=lambda dim: part.shape[dim])
        part = part.narrow(longest, 0, max(1, part.shape[longest] // 2))
    values = part.to("cpu", torch.float64).flatten()
    values = values[values.isfinite()]
    if values.numel():
        described |= {
            "lowest": float(values.min()),
            "highest": float(values.max()),
            "mean": float(values.mean()),
            "deviation": float(values.std(correction=0)),
        }
    return described


def held(tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor`. Each saved tensor of a call is wrapped in a call of this function: a saved file refers to it by
    its name, and the reader (user_module/recorded.py) defines its own `held`."""
    return tensor


def drawn(described: dict[str, Any]) -> torch.Tensor:
    """Stands for a tensor that was too large to save, and must not be called here. A saved file refers to this function
    by its name; the reader (user_module/recorded.py) defines its own `drawn`, which draws random values."""
    raise NotImplementedError("only the worker draws inputs")


def _save(path: str, value: Any, exact: bool | None, limit: int) -> int:
    """Writes `value` with `torch.save` completely or not at all; returns the file's bytes. `exact` is None to pickle as
    usual, else it goes to `_pickling`. Raises TooLargeError beyond `limit` bytes, and what pickling raises."""
    draft = f"{path}.new"
    pickling = pickle if exact is None else _pickling(exact)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        limited = _Limited(file, limit)
        try:
            # The program may run in inference mode, or have a default device.
            with torch.inference_mode(False), torch.no_grad(), torch.device("cpu"):
                torch.save(value, cast("IO[bytes]", limited), pickle_module=pickling)
        except BaseException as error:
            os.unlink(draft)
            if limited.exceeded:
                raise TooLargeError from error
            raise
    os.replace(draft, path)
    return limited.written


def _pickling(exact: bool) -> Any:
    """Returns a pickle module for `torch.save`. It writes tensors as `compact` returns them; unless `exact`, it
    replaces large tensors by their statistics."""

    class Pickler(pickle.Pickler):
        own: dict[int, torch.Tensor] = {}

        def reducer_override(self, value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | Any:
            if not isinstance(value, torch.Tensor) or id(value) in self.own or value.layout is not torch.strided:
                return NotImplemented
            if not exact and value.numel() * value.element_size() > SMALL:
                return drawn, (statistics(value),)
            copy = compact(value)
            self.own[id(copy)] = copy
            return held, (copy,)

    Pickler.own = {}
    module = types.ModuleType("kernel_assistant_pickle")
    module.Pickler = Pickler  # type: ignore[attr-defined]
    return module


class _Limited(io.RawIOBase):
    """A file that raises an error if more than `limit` bytes are written. torch wraps that error, so `exceeded` records
    it."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit = file, limit
        self.written = 0
        self.exceeded = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.written += memoryview(data).nbytes
        if self.written > self._limit:
            self.exceeded = True
            raise TooLargeError
        return self._file.write(data)
