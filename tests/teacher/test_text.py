"""The style of answers: one style, names for numbers, brackets where they are needed, different schedules."""

from __future__ import annotations

import re
from random import Random

import pytest

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.graph import GraphInput, Operand, references
from kernel_assistant_training.teacher import answers

RMS = """// set: T=64 V=4
// launch: k0(x0, p0, out0) grid=B block=T
#include "ka/rows.cuh"
extern "C" __global__ void __launch_bounds__(T) k0(const __grid_constant__ k0_args a) {
  const int64_t r = blockIdx.x;
  ka::row_of<T, V, D0> x;
  x.load(a.x0 + r * D0, D0);
  const float s0 = x.fold<ka::sum>([](float v) { return v * v; });
  const float n1 = s0 / D0;
  const float n2 = n1 + C0;
  const float n3 = ka_rsqrt(n2);
  x.store(a.out0 + r * D0, [=](float v, float p0) {
    const float n4 = v * n3;
    return n4 * p0;
  }, a.p0);
}
"""


def _graph(*steps: tuple[str, tuple[Operand, ...], tuple[str, ...]], dtype: str = "f32") -> OpGraph:
    """x0, x1 of [B, 768] and p0 of [768]; `steps` are (operator, operands, shape)."""
    wide = TensorSpec(dtype=dtype, shape=("B", "768"))
    inputs = [GraphInput(name="x0", spec=wide), GraphInput(name="x1", spec=wide)]
    inputs.append(GraphInput(name="p0", spec=TensorSpec(dtype=dtype, shape=("768",)), kind="param", path="w"))
    nodes = tuple(
        Node(name=f"n{number}", op=op, args=args, spec=TensorSpec(dtype=dtype, shape=shape))
        for number, (op, args, shape) in enumerate(steps)
    )
    used = {name for node in nodes for name in references(node)}
    read = tuple(value for value in inputs if value.name in used)
    return OpGraph(dims={"B": 4096}, inputs=read, nodes=nodes, outputs=(nodes[-1].name,))


WIDE, ROWS = ("B", "768"), ("B", "1")
NORM = _graph(
    ("pow.Tensor_Scalar", ("%x0", 2), WIDE),
    ("mean.dim", ("%n0", [-1], True), ROWS),
    ("add.Tensor", ("%n1", 1e-5), ROWS),
    ("rsqrt", ("%n2",), ROWS),
    ("mul.Tensor", ("%x0", "%n3"), WIDE),
    ("mul.Tensor", ("%n4", "%p0"), WIDE),
)


def test_a_norm_is_written_as_a_person_would() -> None:
    assert answers(canonical(NORM), "cuda", Random(0), 1)[0].source == RMS


CHAIN = _graph(
    ("add.Tensor", ("%x0", "%p0"), WIDE),
    ("mul.Tensor", ("%n0", "%x1"), WIDE),
    ("sub.Tensor", ("%n0", "%n1"), WIDE),
    ("elu", ("%n2", 0.3), WIDE),
    ("neg", ("%n3",), WIDE),
)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_each_value_of_the_graph_has_its_line_and_its_name(target: str) -> None:
    source = answers(canonical(CHAIN), target, Random(0), 1)[0].source
    found = re.findall(r"\b(?:const float (\w+) =|return) (.*);", source)
    assert found == [
        ("n0", "x0 + p0"),
        ("n1", "n0 * x1"),
        ("n2", "n0 - n1"),
        ("n3", "ka_elu(n2, C0, 1.0f, 1.0f)"),
        ("", "-n3"),
    ]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_element_that_is_used_twice_is_read_once(target: str) -> None:
    graph = _graph(("roll", ("%x0", [1], [1]), WIDE), ("tanh", ("%n0",), WIDE), ("mul.Tensor", ("%n0", "%n1"), WIDE))
    source = answers(canonical(graph), target, Random(0), 1)[0].source
    assert source.count("x0[") == 1
    assert "const float n1 = ka_tanh(t0);" in source and "return t0 * n1;" in source


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ((("add.Tensor", ("%x0", "%p0"), WIDE), ("mul.Tensor", ("%n0", "%x0"), WIDE)), "(x0 + p0) * x0"),
        ((("sub.Tensor", ("%x0", "%p0"), WIDE), ("sub.Tensor", ("%x0", "%n0"), WIDE)), "x0 - (x0 - p0)"),
        ((("mul.Tensor", ("%x0", "%p0"), WIDE), ("div.Tensor", ("%x0", "%n0"), WIDE)), "x0 / (x0 * p0)"),
        ((("mul.Tensor", ("%x0", "%p0"), WIDE), ("add.Tensor", ("%x0", "%n0"), WIDE)), "x0 + x0 * p0"),
        ((("neg", ("%x0",), WIDE), ("neg", ("%n0",), WIDE)), "-(-x0)"),
        ((("add.Tensor", ("%x0", "%p0"), WIDE), ("sigmoid", ("%n0",), WIDE)), "ka_sigmoid(x0 + p0)"),
        ((("mul.Tensor", ("%x0", 0.3), WIDE), ("elu", ("%n0",), WIDE)), "ka_elu(x0 * C0, 1.0f, 1.0f, 1.0f)"),
    ],
)
def test_brackets_are_where_they_are_needed(
    steps: tuple[tuple[str, tuple[Operand, ...], tuple[str, ...]], ...], wanted: str
) -> None:
    """Tests values behind a condition, which have no names."""
    joined = ("cat", (["%n1", "%x1"], 1), ("B", "1536"))
    for target in ("cpu", "cuda"):
        source = answers(canonical(_graph(*steps, joined)), target, Random(0), 1)[0].source
        assert f"j < D0 ? {wanted} : x1;" in re.sub(r"\ba(?:->|\.)(\w+)\[[^]]*\]", r"\1", source)


def test_what_stands_behind_a_condition_is_not_computed_before_it() -> None:
    """Of two joined tensors, the one that does not contain the element is not read."""
    wide, long = TensorSpec(dtype="f32", shape=("B", "300")), TensorSpec(dtype="f32", shape=("B", "600"))
    nodes = (
        Node(name="n0", op="neg", args=("%x0",), spec=wide),
        Node(name="n1", op="exp", args=("%n0",), spec=wide),
        Node(name="n2", op="cat", args=(["%n1", "%x1"], 1), spec=long),
        Node(name="n3", op="tanh", args=("%n2",), spec=long),
        Node(name="n4", op="abs", args=("%n3",), spec=long),
    )
    inputs = (GraphInput(name="x0", spec=wide), GraphInput(name="x1", spec=wide))
    graph = OpGraph(dims={"B": 64}, inputs=inputs, nodes=nodes, outputs=("n4",))
    source = answers(canonical(graph), "cpu", Random(0), 1)[0].source
    before, _, behind = source.partition(" ? ")
    assert "a->x0[" not in before and "ka_exp(-a->x0[" in behind
    assert "const float n3 = ka_tanh(n2);" in behind and "return ka_abs(n3);" in behind


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_numbers_of_the_task_have_names(target: str) -> None:
    for answer in answers(canonical(NORM), target, Random(0), 8):
        assert "768" not in answer.source and "4096" not in answer.source and "1e-05" not in answer.source


def test_the_best_guess_comes_first_and_schedules_differ() -> None:
    several = [answers(canonical(NORM), "cuda", Random(seed), 8) for seed in range(3)]
    assert len({found[0] for found in several}) == 1
    assert all(len({answer.source for answer in found}) == len(found) >= 4 for found in several)
    assert several[0] == answers(canonical(NORM), "cuda", Random(0), 8)


def test_kernels_of_one_answer_share_no_names() -> None:
    graph = _graph(("softmax.int", ("%x0", -1), WIDE), ("mean", ("%n0",), ()), ("sub.Tensor", ("%n0", "%n1"), WIDE))
    found = answers(canonical(graph), "cuda", Random(0), 1)[0]
    names = [pair.partition("=")[0] for pair in re.findall(r"// set: (.*)", found.source)[0].split()]
    assert len(set(names)) == len(names)
    assert re.findall(r"// launch: (k\d)", found.source) == re.findall(
        r"void __launch_bounds__\(T\d?\) (k\d)", found.source
    )
    assert "// scratch: w0 f32[B, D0]; w1 f32[B]; w2 f32[]" in found.source
    assert found.families[0] == "parts"


def test_what_is_left_out_has_no_answer() -> None:
    graph = _graph(("add.Tensor", ("%x0", "%x1"), WIDE), dtype="f64")
    assert answers(canonical(graph), "cuda", Random(0), 1) == []


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_kernel_reads_a_result_that_an_earlier_one_wrote(target: str) -> None:
    """Its own result is called out0 until the parts are put together, and so is the result that it reads."""
    spec = TensorSpec(dtype="f32", shape=("B", "512"))
    graph = OpGraph(
        dims={"B": 64},
        inputs=(GraphInput(name="x0", spec=spec),),
        nodes=(
            Node(name="n0", op="cumsum", args=("%x0", -1), spec=spec),
            Node(name="n1", op="cumsum", args=("%n0", -1), spec=spec),
        ),
        outputs=("n0", "n1"),
    )
    source = answers(canonical(graph), target, Random(0), 1)[0].source
    launches = [line for line in source.splitlines() if line.startswith("// launch:")]
    assert [line[len("// launch: ") :].partition(",")[0] for line in launches] == ["k0(x0", "k1(out0"]
    assert ["out1" in line for line in launches] == [False, True]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_window_has_the_lists_of_its_operator(rank: int) -> None:
    """The window has kernel, stride, padding and sizes as lists, as in the prompt, for any number of dimensions."""
    sizes = (40, 60, 90)[:rank]
    spec, behind = (
        TensorSpec(dtype="f32", shape=("B", "12", *map(str, one))) for one in (sizes, [n // 2 for n in sizes])
    )
    args: tuple[Operand, ...] = ("%x0", [3] * rank, [2] * rank, [1] * rank)
    node = Node(name="n0", op=f"max_pool{rank}d", args=args, spec=behind)
    graph = OpGraph(dims={"B": 64}, inputs=(GraphInput(name="x0", spec=spec),), nodes=(node,), outputs=("n0",))
    source = answers(canonical(graph), "cpu", Random(0), 1)[0].source
    lists = ", ".join(f"ka::list<{', '.join([number] * rank)}>" for number in "321")
    names = [value.shape[2:] for value in (canonical(graph).graph.inputs[0].spec, canonical(graph).graph.nodes[0].spec)]
    shapes = ", ".join(f"{{a->B, D0, {', '.join(one)}}}" for one in names)
    assert f"ka::window<{lists}>::run<ka::max>({shapes}," in source


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("last", ["tanh", "softmax.int"])
def test_a_part_begins_behind_so_many_others(target: str, last: str) -> None:
    """It uses the name of the part's size, even if other products have the same value."""
    part = ("B", "256")
    args: tuple[Operand, ...] = ("%n2", -1) if last.startswith("softmax") else ("%n2",)
    graph = _graph(
        ("split.Tensor", ("%x0", 256, -1), part),
        ("getitem", ("%n0", 2), part),
        ("neg", ("%n1",), part),
        (last, args, part),
    )
    task = canonical(graph)
    name = task.graph.nodes[0].spec.shape[1]
    assert f"{name} * 2" in answers(task, target, Random(0), 1)[0].source
