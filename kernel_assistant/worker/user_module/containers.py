"""Registers dataclasses among arguments and results with torch's pytree, which looks only into registered classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.utils import _pytree as pytree


def known_to_pytree(tree: Any) -> None:
    """Registers every dataclass in `tree` with torch's pytree, also those inside others."""
    while True:
        leaves = pytree.tree_leaves(tree)
        fresh = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)}
        if not fresh:
            return
        for cls in fresh:
            torch.export.register_dataclass(cls)
