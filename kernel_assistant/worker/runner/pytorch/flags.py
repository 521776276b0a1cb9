"""PyTorch's global settings that decide how an operator computes: read in one process, set in another. Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Below torch.backends. Newer ones are absent in older versions, and are left out there.
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
    """The settings as plain values."""
    found: dict[str, Any] = {}
    for path in _PLAIN:
        value = _plain(path)
        if isinstance(value, (str, bool)):
            found[path] = value
    for kind in _ATTENTION:
        found[f"{kind}_sdp"] = bool(getattr(torch.backends.cuda, f"{kind}_sdp_enabled")())
    found["threads"] = torch.get_num_threads()
    found["dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
    found["deterministic"] = torch.are_deterministic_algorithms_enabled()
    return found


def set_flags(flags: dict[str, Any], device: int | None = None) -> None:
    """Make the settings of this process those that `read_flags` gave in another; no gradients are kept.

    `device` is the GPU that calls are to run on.
    """
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
            # Asked again: setting the precision of all sets those of each.
            owner, _, name = path.rpartition(".")
            setattr(_below_backends(owner), name, value)
    torch.set_grad_enabled(False)


def give_back() -> None:
    """Device memory that PyTorch keeps for later: another process needs it."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _plain(path: str) -> Any:
    """A setting below torch.backends; None where this version has none of that name."""
    owner, _, name = path.rpartition(".")
    return getattr(_below_backends(owner), name, None)


def _below_backends(path: str) -> Any:
    owner: Any = torch.backends
    for name in filter(None, path.split(".")):
        owner = getattr(owner, name, None)
    return owner
