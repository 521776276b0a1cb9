"""Reads PyTorch's global settings that affect how operators compute in one process, and sets them in another. Needs
torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Settings below torch.backends. Those that a version of torch lacks are left out.
_PLAIN = (
    "fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
)
_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")


def read_flags() -> dict[str, Any]:
    """Returns PyTorch's settings by name: those below `torch.backends` by their path there, and "flash_sdp" and the
    like, "threads", "dtype" (the default one) and "deterministic". All values can be written as JSON."""
    flags: dict[str, Any] = {}
    for path in _PLAIN:
        value = _plain(path)
        if isinstance(value, (str, bool)):
            flags[path] = value
    for kind in _ATTENTION:
        flags[f"{kind}_sdp"] = bool(getattr(torch.backends.cuda, f"{kind}_sdp_enabled")())
    flags["threads"] = torch.get_num_threads()
    flags["dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
    flags["deterministic"] = torch.are_deterministic_algorithms_enabled()
    return flags


def set_flags(flags: dict[str, Any], device: int | None = None) -> None:
    """Applies the settings that `read_flags` returned in another process, and disables gradients.

    `device` is the index of the GPU that calls will run on; None on the CPU."""
    if device is not None:
        torch.cuda.set_device(device)
    now = read_flags()
    setters: dict[str, Callable[[Any], object]] = {
        f"{kind}_sdp": getattr(torch.backends.cuda, f"enable_{kind}_sdp") for kind in _ATTENTION
    }
    setters |= {
        "threads": torch.set_num_threads,
        "dtype": lambda name: torch.set_default_dtype(getattr(torch, name)),
        "deterministic": torch.use_deterministic_algorithms,
    }
    for path, value in flags.items():
        if path in setters:
            if now.get(path) != value:
                setters[path](value)
        elif _plain(path) != value:
            # Compare first: setting the precision of all operations changes that of each.
            owner, _, name = path.rpartition(".")
            setattr(_below_backends(owner), name, value)
    torch.set_grad_enabled(False)


def give_back() -> None:
    """Waits for the GPU, then frees the memory there that PyTorch's allocator caches, because another process needs
    it."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _plain(path: str) -> Any:
    """Returns a setting below torch.backends; None if this version lacks it."""
    owner, _, name = path.rpartition(".")
    return getattr(_below_backends(owner), name, None)


def _below_backends(path: str) -> Any:
    owner: Any = torch.backends
    for name in filter(None, path.split(".")):
        owner = getattr(owner, name, None)
    return owner
