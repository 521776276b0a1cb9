"""A residual call: one PyTorch operator of the task's graph that stays as it is in a plan. See docs/residual.md."""

from __future__ import annotations

from kernel_assistant.records.codec import Record
from kernel_assistant.records.graph import Node, TensorSpec, references

#: Operators that arrange values or make constants: they may lead from buffers to the operands of a call.
PASSIVE = frozenset(
    """view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as alias detach contiguous clone
    lift_fresh_copy expand expand_as broadcast_to transpose t swapaxes permute slice narrow select flip split
    split_with_sizes chunk unsafe_split unsafe_chunk unbind broadcast_tensors arange full full_like ones ones_like zeros
    zeros_like scalar_tensor empty empty_like new_empty new_zeros new_ones new_full getitem""".split()
)


class ResidualCall(Record, frozen=True, kw_only=True):
    """A call of one operator that PyTorch runs in a plan. `nodes` are nodes of the task's graph, unchanged and in
    order: views that lead to the operator, the operator, and the `getitem`s of its results. `specs` gives dtype, shape
    and strides of each value that the launch pairs with a buffer. A value that is one of `nodes` is a result; the call
    reads every other value."""

    nodes: tuple[Node, ...]
    specs: dict[str, TensorSpec]

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        if not names or len(set(names)) != len(names):
            raise ValueError("a residual call needs nodes, each of them once")
        computing = [node.op for node in self.nodes if not is_passive(node)]
        if len(computing) > 1:
            raise ValueError(f"a residual call is one operator, not {', '.join(computing)}")
        known = set(self.reads)
        for node in self.nodes:
            for name in references(node):
                if name not in known:
                    raise ValueError(f"{node.name} of a residual call reads {name}, which it is not given")
            known.add(node.name)
        if not self.results:
            raise ValueError("a residual call needs a result")
        for name in self.results:
            if name != self.call.name and self.nodes[names.index(name)].args[:1] != (f"%{self.call.name}",):
                raise ValueError(f"{name} is no result of {self.call.op}")

    @property
    def call(self) -> Node:
        """The node of the operator that PyTorch runs; the last node if all nodes only arrange values, as views do."""
        return next((node for node in self.nodes if not is_passive(node)), self.nodes[-1])

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in self.specs if all(node.name != name for node in self.nodes))

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(name for name in self.specs if any(node.name == name for node in self.nodes))

    def text(self) -> str:
        """Returns the operator and the name of its node, such as `linear (n3)`."""
        return f"{self.call.op} ({self.call.name})"


def is_passive(node: Node) -> bool:
    return node.op.partition(".")[0] in PASSIVE
