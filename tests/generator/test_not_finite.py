"""Numbers that JSON lacks: infinities and NaN as operands, and complex numbers by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.lower.context import Context
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import TensorSpec
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner.plan import number_of
from kernel_assistant.worker.runner.pytorch.aten import Operator
from tests.generator.harness import Function, built_on_cpu, export

NUMBERS = [float("inf"), float("-inf"), float("nan")]


FUNCTIONS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "masked_fill": lambda x, number: x.masked_fill(x > 0.5, number),
    "where": lambda x, number: torch.where(x > 0.5, x, number) + 1,
    "full": lambda x, number: torch.maximum(torch.full_like(x, number), x),
    "pad": lambda x, number: F.pad(x, (1, 2), value=number) * 2,
    "clamp": lambda x, number: x.clamp(float("-inf"), number),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_kernel_computes_with_them_as_pytorch_does(name: str, tmp_path: Path) -> None:
    function = FUNCTIONS[name]
    model = Function(lambda x: tuple(function(x, number) for number in NUMBERS))
    x = torch.randn(5, 7)
    graph = export(model, x)
    assert any(number_of(str(item)) is not None for node in graph.nodes for item in (*node.args, *node.kwargs.values()))
    for mine, theirs in zip(built_on_cpu(graph, tmp_path)({"x0": x}), model(x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=0, equal_nan=True)


def test_a_norm_of_infinite_order_is_a_kernel_too(tmp_path: Path) -> None:
    model = Function(lambda x: tuple(torch.linalg.vector_norm(x, order, -1) for order in NUMBERS[:2]))
    x = torch.randn(5, 7)
    built = built_on_cpu(export(model, x), tmp_path)
    assert not built.candidate.plan.residual
    for mine, theirs in zip(built({"x0": x}), model(x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_kernel_for_cuda_says_them_in_cuda(name: str) -> None:
    model = Function(lambda x: FUNCTIONS[name](x, float("inf")))
    graph = export(model, torch.randn(5, 7))
    for schedule in initial(graph, "cuda", cpu.facts()):
        assert any("INFINITY" in text for text in emit(graph, schedule).sources.values())


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "node",
    [
        {"op": "masked_fill.Scalar", "args": ["%x", "%mask"]},
        {"op": "where.ScalarOther", "args": ["%mask", "%x"]},
        {"op": "full", "args": [["B", 2]]},
        {"op": "constant_pad_nd", "args": ["%x", [1, 2]]},
        {"op": "clamp", "args": ["%x", None]},
    ],
    ids=lambda node: node["op"],
)
def test_a_residual_call_takes_them(node: dict[str, list[object]], number: float) -> None:
    x = torch.randn(4, 3)
    values = {"x": x, "mask": x > 0}
    call = {"name": "n", "op": node["op"], "args": [*node["args"], str(number)]}
    Operator(call, {"B": 4}, "cpu")(values)
    packet, _, overload = str(node["op"]).partition(".")
    tensors = {"%x": x, "%mask": x > 0}
    given = [tensors[item] if isinstance(item, str) else [4, 2] if item == ["B", 2] else item for item in node["args"]]
    wanted = getattr(getattr(torch.ops.aten, packet), overload or "default")(*given, number)
    torch.testing.assert_close(values["n"], wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("text", ["1j", "(1+2j)", "(-0-1j)", "(nan+infj)", "-1j"])
def test_a_complex_number_is_refused_by_name(text: str) -> None:
    spec = TensorSpec(dtype="f32", shape=("4",))
    context = Context(OpGraph(dims={}, inputs=(), nodes=(), outputs=()))
    context.node = Node(name="n0", op="masked_fill.Scalar", args=("%x0", "%x1", text), kwargs={}, spec=spec)
    for asked in (lambda: context.operand(text, "float"), lambda: context.argument(2, "value")):
        with pytest.raises(Unsupported) as caught:
            asked()
        assert f"masked_fill.Scalar with the complex number {text}" in str(caught.value)


@pytest.mark.parametrize("text", ["B", "j", "Nj", "B - 1", "%n0", "f32", "4*j", "s0*(j + 1)", "contiguous_format"])
def test_what_is_no_number_stays_what_it_is(text: str) -> None:
    assert number_of(text) is None
