"""Sizes with a name: their text in C has their value, and what is equal has one text."""

from __future__ import annotations

import copy
import pickle
import re
from random import Random

import pytest

from kernel_assistant.generator.ir.graph_text import read_graph, write_graph
from kernel_assistant.generator.ir.named import NamedNumber, NamedSize, ceil_div
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.sizes import parse_size, shape_text, size_text
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.graph import GraphInput

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
    x = TensorSpec(dtype="f32", shape=("B", "768"))
    graph = OpGraph(
        dims={"B": 4},
        inputs=(GraphInput(name="x0", spec=x, kind="input"),),
        nodes=(
            Node(name="n0", op="add.Tensor", args=("%x0", 1e-05), spec=x),
            Node(
                name="n1",
                op="view",
                args=("%n0", ["B", 768, 1]),
                spec=TensorSpec(dtype="f32", shape=("B", "768", "1")),
            ),
        ),
        outputs=("n1",),
    )
    named = named_graph(canonical(graph))
    lines = write_graph(named)
    assert "%n0 = add.Tensor(%x0, C0(1e-05)) f32[B,D0(768)]" in lines
    again = read_graph(lines)
    assert write_graph(again) == lines
    assert again.nodes[0].args[1] == 1e-05 and str(again.nodes[1].args[1][1]) == "D0"  # type: ignore[index]
