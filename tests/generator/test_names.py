"""Names in the text: variables are called after the graph's nodes and stand in its order, so that it can be copied line
by line; the text of sizes with a name has their value in C, and what is equal has one text.
"""

from __future__ import annotations

import copy
import pickle
import re
from random import Random

import pytest

from kernel_assistant.generator.emit import PARTS_MARK, SOURCE, emit
from kernel_assistant.generator.ir.graph_text import read_graph, write_graph
from kernel_assistant.generator.ir.named import NamedNumber, NamedSize, ceil_div
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.sizes import parse_size, shape_text, size_text
from kernel_assistant.generator.search.search import first_guess
from kernel_assistant.records import Candidate
from kernel_assistant.records.canonical import canonical
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


SIZES = {"D0": 768, "D1": 12, "D2": 50_000}


def size(name: str) -> NamedSize:
    return NamedSize.of_name(name, SIZES[name])


def in_c(text: str) -> int:
    """The value of C text; sizes that C would compute with too few bits are not looked for."""
    plain = re.sub(r"\((?:int|int64_t)\)", "", text).replace("/", "//")
    return int(eval(plain, {"__builtins__": {}}, SIZES))


def test_texts_of_random_expressions_have_their_value() -> None:
    random = Random(3)
    named = 0
    for _ in range(3000):
        value: int = size(random.choice(list(SIZES)))
        for _ in range(random.randrange(1, 6)):
            other: int = random.choice([size(random.choice(list(SIZES))), random.randrange(1, 70)])
            value = random.choice(
                [
                    lambda a, b: a * b,
                    lambda a, b: a + b,
                    lambda a, b: b + a,
                    lambda a, b: a - b if a > b else b - a,
                    lambda a, b: a // b,
                    lambda a, b: a * (b // 4 + 1),
                    lambda a, b: ceil_div(a, 64) if a > 0 else a,
                ]
            )(value, other)
        named += isinstance(value, NamedSize)
        assert in_c(str(value)) == value, str(value)
        assert parse_size(shape_text(value)) == value
        assert size_text(parse_size(shape_text(value))) == str(value)
    assert named > 2000


def test_what_cancels_is_left_out() -> None:
    a, b = size("D0"), size("D1")
    assert str(a * b // b) == "D0" and str(a // 4 * 4) == "D0" and str(a * 4 // 4) == "D0"
    assert a // (a // 4) == 4 and not isinstance(a // (a // 4), NamedSize)
    # Rounded down, a quotient is a factor of its own.
    assert str(a // 5 * 5) == "(D0 / 5)*5" and a // 5 * 5 == 765
    assert str(a - a) == "0" and str(a * 1) == "D0" and a * 0 == 0


def test_products_that_need_64_bits_have_them() -> None:
    a, b = size("D0"), size("D2")
    assert str(a * b) == "D0*D2" and str(a * b * 100) == "(int64_t)D0*D2*100"
    assert str(a * b * 101 // 1024) == "(int)((int64_t)D0*D2*101 / 1024)"


@pytest.mark.parametrize("size", [size("D0"), size("D0") * 3 // 4, NamedNumber(0.1, "C0")])
def test_copies_keep_the_name(size: float) -> None:
    assert [str(one) for one in (copy.deepcopy(size), pickle.loads(pickle.dumps(size)))] == [str(size)] * 2


def test_rounding_up_has_one_text() -> None:
    assert str(ceil_div(NamedSize.of_name("D0", 768), 128)) == str(ceil_div(NamedSize.of_name("D0", 769), 128))
    assert ceil_div(NamedSize.of_name("D0", 769), 128) == 7 and ceil_div(769, 128) == 7


def test_a_graph_with_names_comes_back_from_its_text() -> None:
    text = """dims B=4
input x0 f32[B,768]
%n0 = add.Tensor(%x0, 1e-05) f32[B,768]
%n1 = view(%n0, [B, 768, 1]) f32[B,768,1]
return %n1"""
    named = named_graph(canonical(read_graph(text.split("\n"))))
    lines = write_graph(named)
    assert "%n0 = add.Tensor(%x0, C0(1e-05)) f32[B,D0(768)]" in lines
    again = read_graph(lines)
    assert write_graph(again) == lines
    assert again.nodes[0].args[1] == 1e-05 and str(again.nodes[1].args[1][1]) == "D0"  # type: ignore[index]
