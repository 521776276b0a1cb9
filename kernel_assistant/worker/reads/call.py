"""One operator of a graph, and which elements of its results are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..symbols import evaluate_size

#: What is needed of a value: True for all of it, or a mask of its shape.
Need = torch.Tensor | bool
Needs = dict[str, Need]
Gates = tuple[frozenset[str], ...]

#: Operators whose operands of these names decide by their values which elements are read of the others.
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
class Call:
    """A node, what is needed of each of its results, and the values of its operands that decide what is read.

    `gates` are values that are zero at some places for a reason (`rules.gates`), the better ones first.
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
        """Of the first result."""
        return self.shapes[self.node["name"]]

    def operands(self) -> list[str]:
        """Names of the values among the operands, each once."""
        return list(dict.fromkeys(name for name in references(self.node) if name in self.shapes))

    def everything(self) -> Needs:
        return dict.fromkeys(self.operands(), True)

    def named(self, *names: str) -> str:
        """The value that is the operand of the first of these names that has one; "" where none has."""
        given = arguments(self.node)
        found = [item[1:] for name in names if isinstance(item := given.get(name), str) and item[1:] in self.shapes]
        return found[0] if found else ""

    def given(self, name: str) -> Any:
        return arguments(self.node).get(name)

    def numbers(self, name: str, default: list[int]) -> list[int]:
        """An operand of one integer or several; `default` where it is missing or empty."""
        found = self.given(name)
        listed = found if isinstance(found, (list, tuple)) else [] if found is None else [found]
        return [
            int(evaluate_size(str(int(one) if isinstance(one, bool) else one), self.dims)) for one in listed
        ] or default

    def mask(self) -> torch.Tensor:
        """What is needed of any of the results, all of which have the shape of the first."""
        if any(need is True for need in self.needed.values()):
            return torch.ones((), dtype=torch.bool, device=self.device).expand(self.shape)
        found = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
        for need in self.needed.values():
            found = found | need
        return found


def kind(node: Mapping[str, Any]) -> str:
    return str(node["op"].partition(".")[0])


def references(node: Mapping[str, Any]) -> Iterator[str]:
    """Names of the values that a node reads, in order, with repeats."""
    for operand in (*node["args"], *node["kwargs"].values()):
        for one in operand if isinstance(operand, (list, tuple)) else [operand]:
            if isinstance(one, str) and one.startswith("%"):
                yield one[1:]


def arguments(node: Mapping[str, Any]) -> dict[str, Any]:
    """Operands by their names in the operator's schema, with what it takes where one is left out."""
    found = overload(node["op"])
    known = found._schema.arguments if found is not None else []
    defaults = {argument.name: argument.default_value for argument in known if argument.has_default_value()}
    names = [argument.name for argument in known]
    return {**defaults, **dict(zip(names, node["args"])), **node["kwargs"]}  # noqa: B905 - the last may be left out


def overload(op: str) -> Any:
    """The operator as PyTorch has it, None for what only graphs know."""
    name, _, which = op.partition(".")
    return getattr(getattr(torch.ops.aten, name, None), which or "default", None)


def decisive(node: Mapping[str, Any], gates: Gates) -> list[str]:
    """Operands on whose values it depends what is read of the others: indices, conditions, a gate that is a factor."""
    if kind(node) == "mul":
        factors = list(references(node))
        chosen = next((found for some in gates if (found := [name for name in factors if name in some])), [])
        return chosen if len(chosen) == 1 and len(factors) == 2 else []
    if kind(node) not in DECIDED_BY:
        return []
    given = arguments(node)
    listed = [given.get(name) for name in DECIDED_BY[kind(node)]]
    flat = [one for item in listed for one in (item if isinstance(item, (list, tuple)) else [item])]
    return [one[1:] for one in flat if isinstance(one, str) and one.startswith("%")]


def whole_or(need: Need) -> Need:
    """True for a mask that has every element."""
    return True if isinstance(need, bool) or bool(need.all()) else need


def joined(one: Need, other: Need) -> Need:
    """What is needed by either."""
    if isinstance(one, bool) or isinstance(other, bool):
        return True
    return whole_or(one | other)


def unbroadcast(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """What is needed of an operand of `shape` that is broadcast to the mask's."""
    while mask.dim() > len(shape):
        mask = mask.any(0)
    return any_over(mask, [dim for dim, size in enumerate(shape) if size == 1 != mask.shape[dim]])


def once(mask: torch.Tensor, dims: int) -> torch.Tensor:
    """The mask without its repeats: of the first `dims` dimensions those along which it is expanded have size 1. Most
    masks are the same for all of a batch, and are kept so."""
    for dim in range(dims):
        if mask.stride(dim) == 0 and mask.shape[dim] > 1:
            mask = mask.narrow(dim, 0, 1)
    return mask


def any_over(mask: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Whether anything along `dims` is needed; they are kept, with size 1."""
    for dim in dims:
        mask = mask.any(dim, keepdim=True)
    return mask
