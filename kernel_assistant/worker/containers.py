"""Dataclasses among arguments and results: torch looks into those only that it has been told of."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.utils import _pytree as pytree


def known_to_pytree(tree: Any) -> None:
    """Tell torch of every class of dataclass in `tree`, also of those inside others."""
    while True:
        leaves = pytree.tree_leaves(tree)
        fresh = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)}
        if not fresh:
            return
        for cls in fresh:
            torch.export.register_dataclass(cls)
