"""Imports a candidate's file and builds its class. Runs in the sandbox only."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import torch

MODULE = "candidate"
FILE = "candidate.py"


def import_candidate(folder: str, text: str) -> ModuleType:
    """Writes the candidate's source `text` to a file in `folder` (Triton reads the source of its kernels), executes it,
    and returns the module."""
    path = os.path.join(folder, FILE)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def build_model(
    module: ModuleType, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int, training: bool, device: str
) -> torch.nn.Module:
    """Returns an instance of the candidate's class `name` on `device`, built after seeding torch with `seed`, as the
    reference was; its parameters need no gradient. `training` selects training or evaluation mode. Raises TypeError if
    the class is not a torch.nn.Module."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = getattr(module, name)(*args, **kwargs)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{name} is not a torch.nn.Module")
    model = model.to(device)
    model.train(training)
    return model.requires_grad_(False)


def load_state(model: torch.nn.Module, state: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> None:
    """Loads the reference's state dict strictly: raises RuntimeError if names or shapes differ. `others` are further
    values by dotted path: those of buffers outside the state dict are copied into `model`, all others are ignored."""
    model.load_state_dict(state, strict=True)
    held = dict(model.named_buffers())
    for path, value in others.items():
        if path in held and path not in state and held[path].shape == value.shape:
            held[path].copy_(value)
