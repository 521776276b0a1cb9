"""Tests which part of the data a task belongs to, and that no part contains the benchmark's problems."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.graph import GraphInput, Operand
from kernel_assistant_training.synth import sample, split
from kernel_assistant_training.synth.digest_kernelbench import main
from kernel_assistant_training.synth.digests import FILE, kernelbench, likeness, read, write


def _graph(shape: tuple[str, ...], *steps: tuple[str, tuple[Operand, ...]], base: int = 64) -> OpGraph:
    """A chain of operators on x0; `%` among the operands stands for the previous value."""
    spec, before, nodes = TensorSpec(dtype="f32", shape=shape), "%x0", []
    for number, (op, operands) in enumerate(steps):
        args = tuple(before if operand == "%" else operand for operand in operands)
        nodes.append(Node(name=f"n{number}", op=op, args=args, spec=spec))
        before = f"%n{number}"
    inputs = (GraphInput(name="x0", spec=spec),)
    return OpGraph(dims={"B": base}, inputs=inputs, nodes=tuple(nodes), outputs=(before[1:],))


def _softmax(columns: str, dim: int) -> OpGraph:
    return _graph(("B", columns), ("softmax.int", ("%", dim)))


@pytest.mark.parametrize("dim", [1, -1])
def test_an_operator_of_the_benchmark_at_its_sizes_is_excluded(dim: int) -> None:
    assert split(canonical(_softmax("393216", dim))) == "excluded"
    assert split(canonical(_softmax("4096", dim))) != "excluded"


def test_several_operators_of_the_benchmark_are_excluded_at_all_sizes() -> None:
    swish = _graph(("B", "777"), ("sigmoid", ("%",)), ("mul.Tensor", ("%x0", "%")))
    assert split(canonical(swish)) == "excluded"
    more = _graph(("B", "777"), ("sigmoid", ("%",)), ("mul.Tensor", ("%x0", "%")), ("exp", ("%",)))
    assert split(canonical(more)) != "excluded"


def test_a_long_graph_with_one_operator_more_is_excluded() -> None:
    ops = "relu tanh exp neg abs sin cos erf floor ceil silu".split()
    benchmark = read(write([_graph(("B", "64"), *((op, ("%",)) for op in ops))], {}))
    more = _graph(("B", "32"), *((op, ("%",)) for op in [*ops, "gelu"]))
    other = _graph(("B", "32"), *((op, ("%",)) for op in [*ops[:8], "gelu", "mish", "selu"]))
    assert benchmark.repeats(more)
    assert not benchmark.repeats(other)
    assert likeness("abcd", "abcde") == pytest.approx(8 / 9)


def test_withheld_families_and_pairs_are_apart() -> None:
    assert split(canonical(_graph(("B", "777"), ("cumprod", ("%", -1))))) == "held_families"
    pair = _graph(("B", "777"), ("gelu", ("%",)), ("softmax.int", ("%", -1)))
    assert split(canonical(pair)) == "held_pairs"


def test_the_split_is_stable() -> None:
    random = Random(0)
    found = [split(canonical(sample(random, 1 + number % 5))) for number in range(3000)]
    counts = Counter(found)
    assert set(counts) == {"train", "held_out", "held_pairs", "held_families", "excluded"}
    assert 0.005 < counts["held_out"] / len(found) < 0.04
    # A key decides for ever: changing this number moves tasks from one part to another.
    keys = [canonical(_graph(("B", "64"), (op, ("%",)))).key()[:8] for op in ("relu", "tanh")]
    assert keys == ["193be393", "4aedfe9f"]


def test_digests_are_made_of_a_folder_and_say_nothing_of_its_text(tmp_path: Path) -> None:
    problem = """
import torch
class Model(torch.nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope
    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, self.slope).tanh()
def get_inputs():
    return [torch.randn(1 << 20, 1 << 20)]
def get_init_inputs():
    return [0.3]
"""
    for level in ("level1", "level2", "level3"):
        (tmp_path / level).mkdir()
    (tmp_path / "level1" / "1_mine.py").write_text(problem)
    (tmp_path / "level2" / "2_broken.py").write_text("raise ValueError('no')")
    done = CliRunner().invoke(main, [str(tmp_path), "--out", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "out.json").read_text()
    assert "leaky" not in text
    found = read(text)
    assert found.repeats(_graph(("B", "1048576"), ("leaky_relu", ("%", 0.3))))
    assert not found.repeats(_graph(("B", "1048575"), ("leaky_relu", ("%", 0.3))))
    assert found.repeats(_graph(("B", "9"), ("leaky_relu", ("%", 0.3)), ("tanh", ("%",))))
    assert json.loads(text)["traced"] == 1


def test_nearly_all_problems_are_in_the_file() -> None:
    content = json.loads(FILE.read_text())
    assert content["traced"] >= 0.97 * content["problems"] >= 240
    assert len(kernelbench().combinations) > 500
