"""Variables are called after the graph's nodes and stand in its order, so that its text can be copied line by line."""

from __future__ import annotations

import re

import pytest

from kernel_assistant.generator.emit import PARTS_MARK, SOURCE, emit
from kernel_assistant.generator.ir.graph_text import read_graph
from kernel_assistant.generator.search.search import first_guess
from kernel_assistant.records import Candidate
from tests.generator.harness import DEVICES

TARGETS = ("cpu", "cuda")
#: Reads its inputs in another order than it has them; on the way to its result n2 comes before n1.
MIXED = """dims B=4
input x0 f32[B,64]
input x1 f32[B,64]
param p0 f32[64] p0
%n0 = mul.Tensor(%x1, %p0) f32[B,64]
%n1 = exp(%x0) f32[B,64]
%n2 = tanh(%n0) f32[B,64]
%n3 = add.Tensor(%n2, %n1) f32[B,64]
return %n3"""
#: One sum over the rows, one over the columns.
TWO_PARTS = """dims B=4
input x0 f32[B,64,64]
%n0 = exp(%x0) f32[B,64,64]
%n1 = sum.dim_IntList(%n0, [2], True) f32[B,64,1]
%n2 = sub.Tensor(%n0, %n1) f32[B,64,64]
%n3 = amax(%n2, [1]) f32[B,64]
return %n3"""
#: The mean of n1 is a sum inside of that node.
REDUCED = """dims B=4
input x0 f32[B,64]
%n0 = exp(%x0) f32[B,64]
%n1 = mean.dim(%n0, [1]) f32[B]
%n2 = amax(%n0, [1]) f32[B]
return %n1, %n2"""
#: A slice beside what it is a slice of.
SLICED = """dims B=4
input x0 f32[B,64]
%n0 = exp(%x0) f32[B,64]
%n1 = slice.Tensor(%n0, 1, 1, 63) f32[B,62]/64,1
%n2 = slice.Tensor(%n0, 1, 0, 62) f32[B,62]/64,1
%n3 = sub.Tensor(%n1, %n2) f32[B,62]
return %n3"""

#: A window that is written out, since channels are last.
WINDOW = """dims B=4
input x0 f32[B,16,16,16]/4096,1,256,16
%n0 = max_pool2d(%x0, [5, 5], [1, 1], [2, 2]) f32[B,16,16,16]/4096,1,256,16
%n1 = neg(%n0) f32[B,16,16,16]/4096,1,256,16
return %n1"""
#: One of two results, and both pieces.
TAKEN = """dims B=4
input x0 f32[B,64]
%n0 = max.dim(%x0, 1) f32[B]
%n1 = getitem(%n0, 0) f32[B]
%n2 = neg(%n1) f32[B]
return %n2"""
CHUNKS = """dims B=4
input x0 f32[B,64]
%n0 = chunk(%x0, 2, 1) f32[B,32]/64,1
%n1 = getitem(%n0, 0) f32[B,32]/64,1
%n2 = getitem(%n0, 1) f32[B,32]/64,1
%n3 = mul.Tensor(%n1, %n2) f32[B,32]
return %n3"""


def written(text: str, target: str) -> tuple[Candidate, str]:
    graph = read_graph(text.split("\n"))
    candidate = emit(graph, first_guess(graph, target, DEVICES[target]))
    return candidate, candidate.sources[SOURCE[target]]


def declared(source: str) -> list[str]:
    return re.findall(r"const (?:float|bool|int64_t) ([ts](?:_\w+|\d\w*)) =", source)


@pytest.mark.parametrize("target", TARGETS)
def test_operands_and_values_stand_in_the_graphs_order(target: str) -> None:
    candidate, source = written(MIXED, target)
    assert [field for field, _ in candidate.plan.launches[0].args][:4] == ["x0", "x1", "p0", "out0"]
    assert declared(source) == ["t_x0", "t_x1", "t_p0", "t0", "t1", "t2", "t3"]
    assert "t3 = t2 + t1;" in source


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_are_called_after_their_nodes(target: str) -> None:
    _, source = written(REDUCED, target)
    assert re.search(r"\br1a\b", source)
    assert re.search(r"\br2\b", source)
    assert re.search(r"float s1 = \w*r1a /", source)


@pytest.mark.parametrize("target", TARGETS)
def test_a_copy_of_a_value_at_another_place_has_a_name_of_its_own(target: str) -> None:
    names = declared(written(SLICED, target)[1])
    assert len(set(names)) == len(names)
    assert {"t1", "t2", "t3"} <= set(names)


@pytest.mark.parametrize("target", TARGETS)
def test_a_window_that_is_written_out_has_its_nodes_name_at_the_end_and_letters_before(target: str) -> None:
    names = declared(written(WINDOW, target)[1])
    assert names[-2:] == ["t0", "t1"]
    assert "s0aa" in names
    assert not [name for name in names if re.fullmatch(r"[ts]0[a-z]*\d+", name)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_is_called_after_the_node_that_takes_it(target: str) -> None:
    assert re.search(r"s2 = -\w*r1\b", written(TAKEN, target)[1])
    assert declared(written(CHUNKS, target)[1])[-1] == "t3"
    assert "t3 = t1 * t2;" in written(CHUNKS, target)[1]


@pytest.mark.parametrize("target", TARGETS)
def test_parts_name_their_nodes_and_what_they_read(target: str) -> None:
    candidate, source = written(TWO_PARTS, target)
    head = source.split("\n")[0]
    parts = [part.split() for part in head.removeprefix(PARTS_MARK).split("; ")]
    assert head.startswith(PARTS_MARK)
    assert {name for part in parts for name in part} == {"n0", "n1", "n2", "n3"}
    reading = dict(candidate.plan.launches[-1].args)
    assert "between0" in [buffer for field, buffer in reading.items() if field.startswith("n")]


@pytest.mark.parametrize("target", TARGETS)
def test_one_nest_has_no_line_of_parts(target: str) -> None:
    assert PARTS_MARK not in written(MIXED, target)[1]
