"""Detects, before any kernels are written, modules for which applied kernels would never run."""

from __future__ import annotations

import torch

from ..applied.watch import foreign_hooks

Attributes = dict[str, dict[str, str]]


def never_runs(model: torch.nn.Module, one_call: Attributes, more_calls: Attributes) -> str:
    """Returns the reason, in words, why applied kernels would never run for this module; "" if they can run. `one_call`
    and `more_calls` are the module's attributes (path of a submodule → name → text of the value) after one call of
    `forward` and after further calls. An attribute that every call changes never equals the value with which the
    kernels were verified, which is a condition for running them."""
    hooked = [path for path, child in model.named_modules() if path and foreign_hooks(child)]
    if hooked:
        return f"its child {hooked[0]} has hooks, which kernels would not call"
    changed = [
        f"{path}.{name}" if path else name
        for path, values in more_calls.items()
        for name, text in values.items()
        if one_call.get(path, {}).get(name) != text
    ]
    return f"every call of forward changes its attribute {changed[0]}, which kernels would not do" if changed else ""
