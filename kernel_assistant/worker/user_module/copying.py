"""Deep copies of modules whose functions refer to their own parts."""

from __future__ import annotations

import copy
from types import CellType, FunctionType
from typing import Any

import torch


def deep_copy(model: torch.nn.Module, known: dict[int, Any] | None = None) -> torch.nn.Module:
    """A deep copy; `known` are the copies of objects by their `id`, as for `copy.deepcopy`.

    A function in an attribute that has parts of the model in its closure, such as `self.mlpf = lambda x: mlp(x)`, has
    those of the copy: `copy.deepcopy` keeps functions as they are. Raises what the module's own copying raises.
    """
    copies = {} if known is None else known
    copied = copy.deepcopy(model, copies)
    for module in copied.modules():
        state = vars(module)
        for name, value in list(state.items()):
            if isinstance(value, FunctionType) and value.__closure__:
                state[name] = _with_copies(value, copies)
    return copied


def _with_copies(function: FunctionType, copies: dict[int, Any]) -> FunctionType:
    """The function with copies in its closure where there are some."""
    cells = function.__closure__ or ()
    changed = tuple(_copied(cell, copies) for cell in cells)
    if all(one is other for one, other in zip(cells, changed, strict=True)):
        return function
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, changed)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made


def _copied(cell: CellType, copies: dict[int, Any]) -> CellType:
    try:
        content = cell.cell_contents
    except ValueError:  # nothing is assigned yet
        return cell
    return CellType(copies[id(content)]) if id(content) in copies else cell
