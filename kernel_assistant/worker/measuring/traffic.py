"""Computes how many bytes of its inputs a call of a graph has to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..reads.call import Gates, Need, OperatorCall, decisive, joined, once, references
from ..reads.rules import gates, reads
from ..runner.pytorch.aten import Operator
from ..symbols import evaluate_size

#: Smallest number of bytes that memory transfers at a time, on both targets.
SECTOR_BYTES = 32


def parts_to_read(
    graph: Mapping[str, Any], dims: Mapping[str, int], given: Mapping[str, torch.Tensor]
) -> dict[str, Need]:
    """Returns, for every value on which the outputs depend, by name, its needed elements: a boolean mask, or True for
    all.

    Goes backwards from the outputs, by the rule of each operator, so that parts of one value that overlap count once.
    The positions that indices and conditions select are read from their values, which are computed from `given` (all
    inputs, parameters and buffers). `dims` are the sizes."""
    shapes = _shapes(graph, dims)
    device = next((value.device for value in given.values()), torch.device("cpu"))
    gated = gates(graph)
    values = _decisive_values(graph, dims, given, device, gated)
    needed: dict[str, dict[int, Need]] = {}

    def add(name: str, need: Need, index: int = 0) -> None:
        parts = needed.setdefault(name, {})
        parts[index] = joined(need, parts[index]) if index in parts else need

    for name in graph["outputs"]:
        add(name, True)
    with torch.no_grad():
        for node in reversed(graph["nodes"]):
            wanted = needed.get(node["name"])
            if wanted is None:
                continue
            if node["op"] == "getitem":
                add(node["args"][0][1:], wanted[0], int(node["args"][1]))
                continue
            for name, need in reads(OperatorCall(node, wanted, shapes, values, dims, device, gated)).items():
                add(name, need)
    return {name: needs[0] for name, needs in needed.items() if 0 in needs}


@dataclass(frozen=True)
class Traffic:
    """The bytes that a call has to read. `changing_bytes` are those of the needed elements of inputs; `moved_bytes` is
    how much memory transfers, in whole sectors of 32 bytes, for the needed elements of inputs, parameters and
    buffers."""

    changing_bytes: int
    moved_bytes: int

    @staticmethod
    def of(
        graph: Mapping[str, Any],
        dims: Mapping[str, int],
        inputs: Mapping[str, torch.Tensor],
        constants: Mapping[str, torch.Tensor],
    ) -> Traffic:
        """Returns the traffic of a graph. `constants` are parameters and buffers. Tensors that are not inputs of the
        graph count completely."""
        known = {value["name"] for value in graph["inputs"]}
        parts = parts_to_read(graph, dims, {**inputs, **constants})

        def need(name: str, value: torch.Tensor) -> Need:
            return parts.get(name, torch.zeros(value.shape, dtype=torch.bool)) if name in known else True

        changing = sum(count(need(name, value), value) * value.element_size() for name, value in inputs.items())
        moved = sum(bytes_moved(need(name, value), value) for name, value in {**inputs, **constants}.items())
        return Traffic(changing, moved)


def count(need: Need, value: torch.Tensor) -> int:
    """Returns the number of needed elements of `value`; `need` is a mask, or True for all."""
    if isinstance(need, bool):
        return value.numel()
    own = once(need, need.dim())
    return int(own.sum()) * (need.numel() // max(own.numel(), 1))


def bytes_moved(need: Need, value: torch.Tensor) -> int:
    """Returns the bytes that memory transfers for the needed elements of `value`, in whole sectors of 32 bytes; `need`
    is a mask, or True for all."""
    each = SECTOR_BYTES // value.element_size()
    if isinstance(need, bool) or not value.is_contiguous():
        return count(need, value) * value.element_size()
    # A mask that is the same for the whole batch is evaluated once.
    own = once(need, min(need.dim(), 1))
    flat = torch.nn.functional.pad(own.reshape(-1), (0, -own.numel() % each))
    touched = int(flat.view(-1, each).any(1).sum()) * each * (need.numel() // max(own.numel(), 1))
    return min(touched, value.numel()) * value.element_size()


def _shapes(graph: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    specs = {value["name"]: value["spec"] for value in (*graph["inputs"], *graph["nodes"])}
    return {
        name: tuple(evaluate_size(str(size), dims) for size in spec["shape"])
        for name, spec in specs.items()
        if spec and "shape" in spec
    }


def _decisive_values(
    graph: Mapping[str, Any],
    dims: Mapping[str, int],
    given: Mapping[str, torch.Tensor],
    device: torch.device,
    gated: Gates,
) -> dict[str, torch.Tensor]:
    """Returns the values that decide which elements are read (indices, conditions and those in `gated`), by name.
    Values from which they are computed are freed as soon as possible."""
    wanted = {name for node in graph["nodes"] for name in decisive(node, gated)}
    order = _above(graph["nodes"], wanted)
    last = {name: index for index, node in enumerate(order) for name in references(node)}
    values: dict[str, Any] = dict(given)
    with torch.no_grad():
        for index, node in enumerate(order):
            Operator(dict(node), dict(dims), str(device))(values)
            for name in set(references(node)) - wanted:
                if last[name] == index:
                    del values[name]
    return {name: values[name] for name in wanted}


def _above(nodes: Iterable[Mapping[str, Any]], wanted: set[str]) -> list[Mapping[str, Any]]:
    """Returns the nodes on which the values in `wanted` depend, in the order of the graph."""
    needed, chosen = set(wanted), []
    for node in reversed(list(nodes)):
        if node["name"] in needed:
            needed.update(references(node))
            chosen.append(node)
    return chosen[::-1]
