"""Tests how a candidate is made from a model's sources."""

from __future__ import annotations

import pytest

from kernel_assistant.agent.binding import bound, unbound
from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.records.graph import GraphInput

GRAPH = OpGraph(
    dims={"B": 8},
    inputs=(
        GraphInput(name="x0", spec=TensorSpec(dtype="f32", shape=("B", "256"))),
        GraphInput(name="p0", spec=TensorSpec(dtype="f32", shape=("256",)), kind="param", path="scale"),
    ),
    nodes=(Node(name="mul", op="mul.Tensor", args=("%x0", "%p0"), spec=TensorSpec(dtype="f32", shape=("B", "256"))),),
    outputs=("mul",),
)
SCALE = """// launch: scale(x0, w=p0, out=out0, rows=B, n=256) grid=(cdiv(B, ROWS), 1) block=BLOCK shared=4*BLOCK
// scratch: sums f32[B, ROWS]; more f32[4]
// set: BLOCK=128 ROWS=2
#include "plan.h"
"""


def test_a_plan_is_read_from_the_comments():
    found = candidate_from({"kernel.cu": SCALE, "notes.txt": "no source"}, GRAPH, "cuda")
    (launch,) = found.plan.launches
    assert launch.symbol == "scale"
    assert launch.args == (("x0", "x0"), ("w", "p0"), ("out", "out0"), ("rows", "B"), ("n", "256"))
    assert (launch.grid, launch.block, launch.shared) == (("cdiv(B, 2)", "1", "1"), ("128", "1", "1"), "4*128")
    assert [spec.name for spec in found.plan.inputs] == ["x0", "p0"]
    assert [(spec.name, spec.shape) for spec in found.plan.outputs] == [("out0", ("B", "256"))]
    assert [(spec.name, spec.shape) for spec in found.plan.scratch] == [("sums", ("B", "2")), ("more", ("4",))]
    assert (found.origin, found.plan.schedule) == ("model", "BLOCK=128 ROWS=2")
    assert "notes.txt" not in found.sources


def test_constants_are_put_in_place_and_the_sources_are_a_workspace_again():
    found = candidate_from({"kernel.cu": SCALE}, GRAPH, "cuda")
    lines = found.sources["kernel.cu"].split("\n")
    assert lines[2] == "constexpr int BLOCK = 128, ROWS = 2;  // set: BLOCK=128 ROWS=2"
    assert len(lines) == len(SCALE.split("\n"))
    assert candidate_from(found.sources, GRAPH, "cuda") == found


def test_lines_are_counted_from_where_the_model_began():
    with pytest.raises(DirectiveError) as caught:
        candidate_from({"kernel.cu": "// set: VEC=4\n#line 1\n\n// launch: f(x9)"}, GRAPH, "cuda")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("source", "line", "why"),
    [
        ("int x;", 1, "no launch line"),
        ("\n// launch: f(x9)", 2, "'x9' is no buffer and no size; buffers: x0, p0, out0; sizes: B"),
        ("// launch: f x0", 1, "want SYMBOL"),
        ("// launch: f(x0, out0) grid=B//0", 1, "bad expression"),
        ("// launch: f(x0, out0) warps=3", 1, "warps= is not known"),
        ("// launch: f(x0, out0) grid=1,2,3,4", 1, "one to three"),
        ("// scratch: s\n// launch: f(x0, out0)", 1, "want NAME DTYPE"),
        ("// scratch: s f99[4]\n// launch: f(x0, out0)", 1, "unknown dtype"),
        ("// launch: f(x0, x0)", 1, "distinct"),
        ("// library: cublaslt.nonsense(a=x0, out=out0)", 1, "nonsense"),
        ("// scratch: x0 f32[4]\n// launch: f(x0, out0)", 0, "distinct"),
    ],
)
def test_what_does_not_fit_is_named_with_its_line(source, line, why):
    with pytest.raises(DirectiveError, match=why.replace("(", r"\(")) as caught:
        candidate_from({"kernel.cu": source}, GRAPH, "cuda")
    assert (caught.value.file, caught.value.line) == ("kernel.cu", line)


def test_geometry_is_for_cuda_and_a_unit_is_needed():
    with pytest.raises(DirectiveError, match="are for CUDA"):
        candidate_from({"kernel.cpp": "// launch: f(x0, out0) grid=B"}, GRAPH, "cpu")
    with pytest.raises(DirectiveError, match=r"no \*\.cpp file"):
        candidate_from({"kernel.cu": SCALE}, GRAPH, "cpu")


NAMED = """// set: T=128
// scratch: sums f32[B, D0]
// launch: scale(x0, p0, out0, sums, n=B*D0) grid=cdiv(D0, T) block=T
extern "C" __global__ void scale(const __grid_constant__ scale_args a) { a.out0[0] = C0 * D0; }
"""


def _task(dtype: str = "f32") -> Canonical:
    wide = TensorSpec(dtype=dtype, shape=("B", "256"))
    weight = GraphInput(name="p0", spec=TensorSpec(dtype=dtype, shape=("256",)), kind="param", path="scale")
    node = Node(name="n0", op="add.Tensor", args=("%x0", "%p0"), kwargs={"alpha": 0.25}, spec=wide)
    graph = OpGraph(dims={"B": 8}, inputs=(GraphInput(name="x0", spec=wide), weight), nodes=(node,), outputs=("n0",))
    return canonical(graph)


def test_names_of_numbers_are_bound():
    task = _task()
    found = candidate_from({"kernel.cu": NAMED}, task.concrete(), "cuda", task)
    (launch,) = found.plan.launches
    assert (launch.grid[0], dict(launch.args)["n"]) == ("cdiv(256, 128)", "B*256")
    assert [spec.shape for spec in found.plan.scratch] == [("B", "256")]
    head = found.sources["kernel.cu"].split("\n")[:5]
    assert head[1:] == ['#include "plan.h"', "constexpr int64_t D0 = 256;", "constexpr float C0 = 0.25f;", "#line 1"]
    assert candidate_from(found.sources, task.concrete(), "cuda", task) == found
    assert "constexpr double C0 = 0.25;" in bound(NAMED, _task("f64"))
    assert "D0" not in bound("int x;", task) and unbound(bound(NAMED, task)) == NAMED


def test_lines_of_bound_sources_are_the_models():
    task = _task()
    with pytest.raises(DirectiveError, match="sizes: B, D0") as caught:
        candidate_from({"kernel.cu": bound("\n// launch: f(D7)", task)}, task.concrete(), "cuda", task)
    assert caught.value.line == 2


def test_the_screen_counts_the_models_lines():
    task = _task()
    source = NAMED.replace("a.out0[0] =", "clock64(); a.out0[0] =")
    (found,) = screen(candidate_from({"kernel.cu": source}, task.concrete(), "cuda", task), task.concrete())
    assert (found.line, found.message) == (4, "not allowed: clocks inside a kernel")
