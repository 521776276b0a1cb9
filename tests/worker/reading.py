"""Finds the elements that a graph really reads: it runs in float64, with some elements of its inputs replaced."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import torch

from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.worker.measuring.traffic import parts_to_read
from kernel_assistant.worker.reads.call import Need, arguments, kind
from kernel_assistant.worker.runner.pytorch.aten import Operator
from kernel_assistant.worker.runner.pytorch.tensors import DTYPES
from kernel_assistant.worker.symbols import evaluate_size

Values = dict[str, torch.Tensor]
#: What an element becomes: the first is felt by what takes a largest value, the second by what takes a least one, the
#: others by what is bounded on both sides.
CHANGES = (lambda x: x + 1e3, lambda x: x - 1e3, lambda x: x + 0.37, lambda x: -x, lambda x: x + 0.01)
#: Other inputs, from such that are even between 0 and 1.
DRAWS = (lambda x: x * 0.1 + 0.01, lambda x: -x, lambda x: 6 * x - 3, lambda x: 1 - 0.01 * x)
DRAWS += (lambda x: 8 * x + 2, lambda x: -8 * x - 2, lambda x: 0.5 * x - 0.25)
#: Elements of one input that are changed one at a time, of those that its gradient does not show.
TRIED = 8
#: How the size of an index is called where it is one of a dimension.
_TABLES = {"embedding": "weight", "gather": "self", "index_select": "self", "cross_entropy_loss": "self"}
_TABLES |= {"index": "self", "take_along_dim": "self", "nll_loss_nd": "self", "scatter": "self"}


class Graph:
    """A graph in float64, ready to be run, and inputs for it."""

    def __init__(self, graph: OpGraph, seed: int) -> None:
        text = re.sub(r'"(f32|bf16|f16)"', '"f64"', json.dumps(to_builtins(graph)))
        self.plain: dict[str, Any] = json.loads(text)
        self.specs = {one["name"]: one["spec"] for one in (*self.plain["inputs"], *self.plain["nodes"])}
        self.dims = dict(graph.dims)
        self.operators = [Operator(node, self.dims, "cpu") for node in self.plain["nodes"]]
        self.generator = torch.Generator().manual_seed(seed)
        self.most = {value["name"]: self._most(value["name"]) for value in self.plain["inputs"]}
        self.values = {value["name"]: self._drawn(value["name"], value["spec"]) for value in self.plain["inputs"]}

    def outputs(self, values: Values) -> list[torch.Tensor]:
        known: dict[str, Any] = dict(values)
        for operator in self.operators:
            operator(known)
        return [known[name] for name in self.plain["outputs"]]

    def parts(self) -> dict[str, Need]:
        return parts_to_read(self.plain, self.dims, self.values)

    def redrawable(self) -> Values:
        return {name: x for name, x in self.values.items() if x.dtype.is_floating_point and name[0] != "b"}

    def redrawn(self) -> Iterator[Values]:
        """The inputs, and inputs with other floating values but the same indices and conditions. An element is read
        even if its value is clamped or multiplied by zero for one of the inputs.
        """
        yield self.values
        for draw in DRAWS:
            others = {
                name: draw(torch.rand(value.shape, generator=self.generator, dtype=value.dtype))
                for name, value in self.redrawable().items()
            }
            yield {**self.values, **others}

    def changed(self, values: Values, where: torch.Tensor, name: str) -> Iterator[Values]:
        """`values` with other elements in `name` where the mask is True, one set of values for each change."""
        value = values[name]
        if value.dtype.is_floating_point:
            others = [change(value) for change in CHANGES]
        elif value.dtype == torch.bool:
            others = [~value]
        else:
            others = [(value + step) % self.most[name] for step in range(1, min(self.most[name], 4))]
        for other in others:
            yield {**values, name: torch.where(where, other, value)}

    def _drawn(self, name: str, spec: dict[str, Any]) -> torch.Tensor:
        dtype, shape = DTYPES[spec["dtype"]], self._shape(spec)
        if dtype.is_floating_point:
            # Positive at most places: no logarithm or root is NaN for all of a task.
            return torch.rand(shape, generator=self.generator, dtype=dtype) * 2 - (0.0 if name[0] == "b" else 0.5)
        found = torch.randint(0, 2 if dtype == torch.bool else self.most[name], shape, generator=self.generator)
        return found.to(dtype)

    def _most(self, name: str) -> int:
        """Indices are smaller than this number."""
        found = []
        for node in self.plain["nodes"]:
            given = arguments(node) if node["op"] != "getitem" else {}
            listed = [one for item in given.values() for one in (item if isinstance(item, list) else [item])]
            table = given.get(_TABLES.get(kind(node), ""))
            if f"%{name}" in listed and table is not None:
                dim = given.get("dim", 1 if kind(node) in ("cross_entropy_loss", "nll_loss_nd") else 0)
                found.append(self._shape(self.specs[table[1:]])[dim])
        return min(found, default=2)

    def _shape(self, spec: dict[str, Any]) -> list[int]:
        return [evaluate_size(size, self.dims) for size in spec["shape"]]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, b) or torch.equal(a.nan_to_num(0.123), b.nan_to_num(0.123)) for a, b in pairs)


def unread(graph: Graph) -> list[tuple[str, int]]:
    """Elements that are counted as read although no change of them changes an output, as input and flat index. Only a
    sample is tried.
    """
    found = []
    parts = graph.parts()
    shown = _with_gradient(graph)
    for name, value in graph.values.items():
        need = parts.get(name, torch.zeros(value.shape, dtype=torch.bool))
        counted = torch.ones(value.shape, dtype=torch.bool) if isinstance(need, bool) else need
        (doubtful,) = (counted & ~shown[name]).reshape(-1).nonzero(as_tuple=True)
        for place in doubtful[torch.randperm(len(doubtful), generator=graph.generator)[:TRIED]].tolist():
            where = (torch.arange(value.numel()) == place).reshape(value.shape)
            if not any(_matters(graph, name, where, others) for others in graph.redrawn()):
                found.append((name, place))
    return found


def _matters(graph: Graph, name: str, where: torch.Tensor, values: Values) -> bool:
    want = graph.outputs(values)
    return not all(same(graph.outputs(one), want) for one in graph.changed(values, where, name))


def left_out(graph: Graph) -> list[str]:
    """Inputs with elements that are not counted as read although they change an output."""
    found = []
    parts = graph.parts()
    for name, value in graph.values.items():
        need = parts.get(name, torch.zeros(value.shape, dtype=torch.bool))
        if not isinstance(need, bool) and _matters(graph, name, ~need, graph.values):
            found.append(name)
    return found


def _with_gradient(graph: Graph) -> Values:
    """Elements with a gradient of some output: they are read and need not be tried."""
    leaves = {name: value.clone().requires_grad_() for name, value in graph.redrawable().items()}
    outputs = [one for one in graph.outputs({**graph.values, **leaves}) if one.requires_grad]
    slopes: dict[str, torch.Tensor | None] = {}
    if outputs:
        weights = [torch.rand(one.shape, generator=graph.generator, dtype=one.dtype) + 0.5 for one in outputs]
        found = torch.autograd.grad(outputs, list(leaves.values()), weights, allow_unused=True)
        slopes = dict(zip(leaves, found, strict=True))
    none = {name: torch.zeros(value.shape, dtype=torch.bool) for name, value in graph.values.items()}
    return none | {name: slope.nan_to_num(0) != 0 for name, slope in slopes.items() if slope is not None}
