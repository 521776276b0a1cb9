"""Tests the names for the numbers of a graph, and the inverse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.graph import GraphInput, Operand
from tests.generator.composite_graphs import composite_graphs
from tests.generator.composites import COMPOSITES
from tests.generator.graphs import graphs
from tests.generator.harness import export


def spec(*shape: str, dtype: str = "f32", strides: tuple[str, ...] | None = None) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape, strides=strides)


def norm(width: str = "768", epsilon: float = 1e-5) -> OpGraph:
    """The example of the module's documentation."""
    wide, narrow = spec("B", width), spec("B", "1")
    return OpGraph(
        dims={"B": 4096},
        inputs=(GraphInput(name="x0", spec=wide), GraphInput(name="p0", spec=spec(width), kind="param", path="weight")),
        nodes=(
            Node(name="n0", op="pow.Tensor_Scalar", args=("%x0", 2), spec=wide),
            Node(name="n1", op="mean.dim", args=("%n0", [-1], True), spec=narrow),
            Node(name="n2", op="add.Tensor", args=("%n1", epsilon), spec=narrow),
            Node(name="n3", op="rsqrt", args=("%n2",), spec=narrow),
            Node(name="n4", op="mul.Tensor", args=("%x0", "%n3"), spec=wide),
            Node(name="n5", op="mul.Tensor", args=("%n4", "%p0"), spec=wide),
        ),
        outputs=("n5",),
    )


def one(op: str, *args: Operand, shape: tuple[str, ...] = ("B", "64"), **kwargs: Operand) -> Any:
    """Canonical form of a single operator on x0, with a result of f32 and this shape."""
    return of_node(Node(name="n0", op=op, args=("%x0", *args), kwargs=kwargs, spec=spec(*shape)))


def of_node(node: Node, *shape: str) -> Any:
    """Canonical form of a graph of one node on x0 of this shape, or [B,64]."""
    inputs = (GraphInput(name="x0", spec=spec(*(shape or ("B", "64")))),)
    return canonical(OpGraph(dims={"B": 8}, inputs=inputs, nodes=(node,), outputs=("n0",)))


def test_the_text_that_a_model_reads():
    found = canonical(norm())
    assert found.text() == (
        "x0 f32[B,D0]\np0 [D0]\nn0 = pow(x0, 2)\nn1 = mean(n0, [-1], true) [B,1]\nn2 = add(n1, C0)\nn3 = rsqrt(n2)\n"
        "n4 = mul(x0, n3)\nn5 = mul(n4, p0)\nreturn n5\n"
    )
    assert (found.sizes, found.constants) == ({"D0": 768}, {"C0": 1e-5})


def test_the_key_knows_no_numbers_but_everything_else():
    key = canonical(norm()).key()
    assert canonical(norm("1000", 1e-6)).key() == key
    other = norm()
    last = replace(other.nodes[-1], op="add.Tensor")
    assert canonical(replace(other, nodes=(*other.nodes[:-1], last))).key() != key
    # A constant of the formula is not one of the model.
    assert canonical(norm(epsilon=1.0)).key() != key


def test_what_says_how_an_operator_works_stays():
    assert "max_pool2d(x0, [3,3], [2,2], [1,1])" in one("max_pool2d", [3, 3], [2, 2], [1, 1]).text()
    assert "slice(x0, 1, 8, D1) [B,D2]" in one("slice.Tensor", 1, 8, 48, shape=("B", "40")).text()
    assert "slice(x0, 1, 8, end) [B,D1]" in one("slice.Tensor", 1, 8, (1 << 63) - 1, shape=("B", "56")).text()
    clamped = one("clamp", -20.5, 0.5)
    assert "clamp(x0, -20.5, 0.5)" not in clamped.text() and clamped.constants == {"C0": -20.5}
    assert "nll(x0, ignore_index=-100, reduction=mean)" in one("nll", ignore_index=-100, reduction="mean").text()
    assert "pow(x0, 2.0)" in one("pow.Tensor_Scalar", 2.0).text()


def test_sizes_share_names_and_products_of_free_dimensions_keep_theirs():
    found = one("view", ["B*16", 4], shape=("B*16", "4"))
    assert "view(x0, [B*D1,D2]) [B*D1,D2]" in found.text() and found.sizes == {"D0": 64, "D1": 16, "D2": 4}
    assert "[B//2,D1]" in one("view", ["B//2", 128], shape=("B//2", "128")).text()
    transposed = spec("B", "64", "1", strides=("64", "1", "1"))
    node = Node(name="n0", op="transpose.int", args=("%x0", 1, 2), spec=transposed)
    assert "[B,D0,1]/D0,1,1" in of_node(node, "B", "1", "64").text()


def test_other_names_are_renumbered():
    wide = spec("D0", "64")
    scaled = OpGraph(
        dims={"D0": 8},
        inputs=(GraphInput(name="x", spec=wide), GraphInput(name="w", spec=spec("64"), kind="buffer", path="w")),
        nodes=(
            Node(name="mul", op="mul.Tensor", args=("%x", "%w"), spec=wide),
            Node(name="cat", op="cat", args=(["%mul", "%x"], 1), spec=spec("D0", "128")),
        ),
        outputs=("cat", "mul"),
    )
    found = canonical(scaled)
    assert found.text() == ("x0 f32[D0,D1]\nb0 [D1]\nn0 = mul(x0, b0)\nn1 = cat([n0,x0], 1) [D0,D2]\nreturn n1, n0\n")
    assert canonical(found.concrete()).text() == found.text()


def _plain(graph: OpGraph) -> OpGraph:
    """The graph with numbers in place of sizes among the operands, as the exporter writes them."""

    def item(value: Any) -> Any:
        return int(value) if isinstance(value, str) and value.isdigit() else value

    def plain(node: Node) -> Node:
        args = tuple([item(x) for x in arg] if isinstance(arg, list) else item(arg) for arg in node.args)
        return replace(node, args=args)

    return replace(graph, nodes=tuple(map(plain, graph.nodes)))


@settings(max_examples=60, deadline=None)
@given(graph=graphs() | composite_graphs())
def test_the_numbers_can_be_put_back(graph: OpGraph) -> None:
    found = canonical(graph)
    assert found.concrete() == _plain(graph)
    assert not any(size.isdigit() and int(size) > 1 for value in found.graph.inputs for size in value.spec.shape)
    assert canonical(found.concrete()) == found


@pytest.mark.parametrize("name", list(COMPOSITES)[::12])
def test_traced_graphs_keep_their_names_and_come_back(name: str) -> None:
    module, tensors = COMPOSITES[name]
    graph = export(module, *tensors)
    found = canonical(graph)
    assert found.concrete() == graph
    assert [value.name for value in found.graph.inputs] == [value.name for value in graph.inputs]
