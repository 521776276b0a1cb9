"""Finds tensors that `forward` makes of numbers, such as `torch.tensor(0.5)`. They are written as nodes of the graph:
the module does not hold them, so an applied kernel could not read them from it.

A tensor that exists before the call, such as a global one, is not written as a node, because a program may change it.
If the numbers come from an attribute, the guard of an applied file (the check before each call) compares that
attribute.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from ..applied.attributes import MOST_COMPARED

#: How torch.export begins the name of a tensor that is no attribute of the module.
_PREFIX = "lifted_tensor_"
#: Most runs of equal values of a tensor that is written as nodes.
MOST_RUNS = 64


def is_lifted(spec: InputSpec) -> bool:
    """Whether an input of a program is a tensor that the module does not hold."""
    return spec.kind == InputKind.CONSTANT_TENSOR and str(spec.target).startswith(_PREFIX)


def made_in_forward(program: ExportedProgram) -> frozenset[str]:
    """Returns the names of the constants that every call of `forward` makes anew. `program` must still be as
    torch.export returned it, with its calls of `lift_fresh`."""
    specs = program.graph_signature.input_specs
    nodes = (node for node in program.graph.nodes if node.op == "placeholder")
    return frozenset(
        str(spec.target)
        for node, spec in zip(nodes, specs, strict=True)
        if is_lifted(spec) and all(str(user.target).startswith("aten.lift_fresh") for user in node.users)
    )


def runs_of(value: torch.Tensor) -> list[tuple[Any, int]] | None:
    """Returns the elements of a tensor in order, run-length encoded as pairs (value, number of times in a row); None if
    there are too many elements or runs to write them as nodes of a graph."""
    if value.numel() > MOST_COMPARED:
        return None
    flat = value.detach().cpu().reshape(-1).tolist()
    runs = [(same[0], len(same)) for _, group in groupby(flat, key=repr) for same in [list(group)]]
    return runs if len(runs) <= MOST_RUNS else None
