"""An operator call in a graph, as the rules of this package see it: its operands, and which elements of its results are
needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..symbols import evaluate_size

#: The needed elements of a value: True for all of it, or a mask of its shape.
Need = torch.Tensor | bool
Needs = dict[str, Need]
Gates = tuple[frozenset[str], ...]

#: Operators and the names of those operands whose values decide which elements of the other operands are read.
DECIDED_BY = {
    "where": ("condition",),
    "masked_fill": ("mask",),
    "embedding": ("indices",),
    "embedding_bag": ("indices", "offsets", "per_sample_weights"),
    "nll_loss": ("target", "weight"),
    "nll_loss_nd": ("target", "weight"),
    "nll_loss2d": ("target", "weight"),
    "repeat_interleave": ("repeats",),
    "index_put": ("indices",),
    "_unsafe_index": ("indices",),
    "index": ("indices",),
    "gather": ("index",),
    "index_add": ("index",),
    "index_copy": ("index",),
    "index_fill": ("index",),
    "index_select": ("index",),
    "scatter": ("index",),
    "scatter_add": ("index",),
    "take": ("index",),
    "take_along_dim": ("indices",),
}


@dataclass
class OperatorCall:
    """An operator call of the graph (`node`), seen from its results: `needed` maps the index of a result to its needed
    elements (True for all, or a boolean mask), `values` has the values of those operands that decide which elements of
    other operands are read, such as indices.

    `gates` are sets of names of graph values with zeros at known positions, such as masks (`rules.gates`), the more
    reliable ones first: where such a factor is zero, the other factor of a product need not be read.
    """

    node: Mapping[str, Any]
    needed: Mapping[int, Need]
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, torch.Tensor]
    dims: Mapping[str, int]
    device: torch.device
    gates: Gates = ()

    @property
    def kind(self) -> str:
        return kind(self.node)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.shapes[self.node["name"]]

    def operands(self) -> list[str]:
        """Returns the names of the operands that are values of the graph, each once."""
        return list(dict.fromkeys(name for name in references(self.node) if name in self.shapes))

    def everything(self) -> Needs:
        return dict.fromkeys(self.operands(), True)

    def named(self, *names: str) -> str:
        """Returns the name of the graph value that is passed for the first operand in `names` (names in the operator's
        schema) for which a graph value is passed; "" if there is none."""
        given = arguments(self.node)
        operands = [item[1:] for name in names if isinstance(item := given.get(name), str) and item[1:] in self.shapes]
        return operands[0] if operands else ""

    def given(self, name: str) -> Any:
        return arguments(self.node).get(name)

    def numbers(self, name: str, default: list[int]) -> list[int]:
        """Returns the operand `name` as a list of integers, whether the call has one integer or several; `default` if
        it is missing or empty."""
        operand = self.given(name)
        listed = operand if isinstance(operand, (list, tuple)) else [] if operand is None else [operand]
        return [
            int(evaluate_size(str(int(one) if isinstance(one, bool) else one), self.dims)) for one in listed
        ] or default

    def mask(self) -> torch.Tensor:
        """Returns a boolean mask with the shape of the results: true for the elements that are needed of at least one
        result."""
        if any(need is True for need in self.needed.values()):
            return torch.ones((), dtype=torch.bool, device=self.device).expand(self.shape)
        mask = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
        for need in self.needed.values():
            mask = mask | need
        return mask


def kind(node: Mapping[str, Any]) -> str:
    return str(node["op"].partition(".")[0])


def references(node: Mapping[str, Any]) -> Iterator[str]:
    """Yields the names of the values that a node reads, in order, with repeats."""
    for operand in (*node["args"], *node["kwargs"].values()):
        for one in operand if isinstance(operand, (list, tuple)) else [operand]:
            if isinstance(one, str) and one.startswith("%"):
                yield one[1:]


def arguments(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the node's operands by their names in the operator's schema; operands that the node leaves out have their
    defaults."""
    operator = overload(node["op"])
    known = operator._schema.arguments if operator is not None else []
    defaults = {argument.name: argument.default_value for argument in known if argument.has_default_value()}
    names = [argument.name for argument in known]
    return {**defaults, **dict(zip(names, node["args"])), **node["kwargs"]}  # noqa: B905 - the last may be left out


def overload(op: str) -> Any:
    """Returns PyTorch's operator for `op`, a name in a graph such as `add.Tensor`; None for an operator that exists in
    graphs only."""
    name, _, which = op.partition(".")
    return getattr(getattr(torch.ops.aten, name, None), which or "default", None)


def decisive(node: Mapping[str, Any], gates: Gates) -> list[str]:
    """Returns the names of the operands whose values decide which elements of the other operands are read: indices,
    conditions, or a factor of a product that is a gate (a value with zeros at known positions)."""
    if kind(node) == "mul":
        factors = list(references(node))
        chosen = next((gated for some in gates if (gated := [name for name in factors if name in some])), [])
        return chosen if len(chosen) == 1 and len(factors) == 2 else []
    if kind(node) not in DECIDED_BY:
        return []
    given = arguments(node)
    listed = [given.get(name) for name in DECIDED_BY[kind(node)]]
    flat = [one for item in listed for one in (item if isinstance(item, (list, tuple)) else [item])]
    return [one[1:] for one in flat if isinstance(one, str) and one.startswith("%")]


def whole_or(need: Need) -> Need:
    """Returns True if all elements are needed, otherwise `need`, which is a mask then."""
    return True if isinstance(need, bool) or bool(need.all()) else need


def joined(one: Need, other: Need) -> Need:
    """Returns the union of two sets of needed elements, each True (all) or a mask."""
    if isinstance(one, bool) or isinstance(other, bool):
        return True
    return whole_or(one | other)


def unbroadcast(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Returns a mask of the needed elements of an operand of `shape`. `mask` has the needed elements of the value to
    which the operand is broadcast."""
    while mask.dim() > len(shape):
        mask = mask.any(0)
    return any_over(mask, [dim for dim, size in enumerate(shape) if size == 1 != mask.shape[dim]])


def once(mask: torch.Tensor, dims: int) -> torch.Tensor:
    """Returns the mask with size 1 in those of its first `dims` dimensions along which it is expanded (stride 0), so
    that equal parts are handled once. Most masks are equal for the whole batch and are stored in this form."""
    for dim in range(dims):
        if mask.stride(dim) == 0 and mask.shape[dim] > 1:
            mask = mask.narrow(dim, 0, 1)
    return mask


def any_over(mask: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Returns the mask reduced by `any` along `dims`, which keep size 1: for each position outside of `dims`, whether
    any element along them is needed."""
    for dim in dims:
        mask = mask.any(dim, keepdim=True)
    return mask
