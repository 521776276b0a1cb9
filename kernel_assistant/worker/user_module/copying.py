"""Copies modules deeply, including functions in their attributes that refer to parts of the module."""

from __future__ import annotations

import copy
from types import CellType, FunctionType
from typing import Any

import torch


def deep_copy(model: torch.nn.Module, known: dict[int, Any] | None = None) -> torch.nn.Module:
    """Returns a deep copy of the module. `known` maps the `id` of objects to their copies, as the memo of
    `copy.deepcopy` does, and gets those that are made.

    A function in an attribute that has parts of the model in its closure or its defaults, such as `self.mlpf = lambda
    x: mlp(x)`, refers to the parts of the copy instead: `copy.deepcopy` keeps functions as they are. Raises what the
    module's own copying raises.
    """
    copies = {} if known is None else known
    copied = copy.deepcopy(model, copies)
    for module in copied.modules():
        state = vars(module)
        for name, value in list(state.items()):
            if isinstance(value, FunctionType):
                state[name] = _with_copies(value, copies)
    return copied


def _with_copies(function: FunctionType, copies: dict[int, Any]) -> FunctionType:
    """Returns the function with the objects in its closure and its defaults replaced by their copies (`copies`: id →
    copy); the function itself if none of them has a copy."""
    cells, defaults = function.__closure__ or (), function.__defaults__ or ()
    keywords = function.__kwdefaults__ or {}
    if not any(id(value) in copies for value in (*map(_content, cells), *defaults, *keywords.values())):
        return function
    closure = tuple(_copied(cell, copies) for cell in cells)
    of_copy = tuple(copies.get(id(value), value) for value in defaults)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, of_copy, closure)
    made.__kwdefaults__ = {name: copies.get(id(value), value) for name, value in keywords.items()}
    made.__dict__.update(function.__dict__)
    return made


def _copied(cell: CellType, copies: dict[int, Any]) -> CellType:
    content = _content(cell)
    return CellType(copies[id(content)]) if id(content) in copies else cell


def _content(cell: CellType) -> Any:
    """Returns the object in a closure's cell; the cell itself if nothing is assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell
