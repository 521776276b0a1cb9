"""Composite operators that become several nodes, and reductions in two steps: tests the names of the new nodes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.generator.lower.expand import expand, in_steps
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput
from kernel_assistant.targets.detect import detect
from tests.generator.harness import export

WIDE, ROW = TensorSpec(dtype="f32", shape=("4", "5")), TensorSpec(dtype="f32", shape=("4",))


class Triplet(torch.nn.Module):
    def forward(self, x, y, z):
        return F.triplet_margin_loss(x, y, z)


@pytest.mark.parametrize("dim", [1, -1])
def test_an_expansion_may_be_reduced_in_steps(dim: int) -> None:
    """Both create nodes in place of the loss; the last of them gets its name."""
    plain = expand(export(Triplet(), *[torch.randn(4, 5, 6)] * 3))
    found = in_steps(plain, dim)
    assert len(found.nodes) > len(plain.nodes)
    assert found.outputs == plain.outputs
    assert initial(export(Triplet(), *[torch.randn(4, 5, 6)] * 3), "cpu", detect("cpu"))


def test_a_node_that_is_called_like_a_made_one_keeps_its_name() -> None:
    def loss(name: str) -> OpGraph:
        nodes = (
            Node(name=name, op="neg", args=("%x0",), spec=WIDE),
            Node(name="n1", op="pairwise_distance", args=(f"%{name}", "%x0"), spec=ROW),
            Node(name="n2", op="cross_entropy_loss", args=("%x0", "%x1"), spec=TensorSpec(dtype="f32", shape=())),
        )
        inputs = (GraphInput(name="x0", spec=WIDE), GraphInput(name="x1", spec=TensorSpec(dtype="i64", shape=("4",))))
        return OpGraph(dims={}, inputs=inputs, nodes=nodes, outputs=("n1", "n2"))

    usual, other = expand(loss("n0")), expand(loss("n2_1"))
    assert [one.name for one in usual.nodes][2:] == ["n2_0", "n2_1", "n2_2", "n2_3", "n2"]
    assert [one.name for one in other.nodes] == ["n2_1", "n1", "n2_0", "n2_2", "n2_3", "n2_4", "n2"]
