"""`einsum` in steps of two operands: which steps, their values, and what stays PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kernel_assistant.generator.lower.expand import expand
from kernel_assistant.generator.plan.partition import partition
from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.support import classify
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.records.graph import GraphInput
from kernel_assistant.worker.runner.pytorch.aten import Operator
from tests.generator.by_parts import ByParts
from tests.generator.checks import check_compiles, check_on_cpu, check_on_gpu
from tests.generator.harness import H200, Function, Tensors, bindings, export, spread

Shape = tuple[int, ...]


def _graph(equation: str, shapes: list[Shape], out: Shape, dtype: str = "f64") -> OpGraph:
    """A graph of one einsum, whose result has the shape `out`."""
    specs = [TensorSpec(dtype=dtype, shape=tuple(map(str, shape))) for shape in (*shapes, out)]
    inputs = tuple(GraphInput(name=f"x{number}", spec=spec) for number, spec in enumerate(specs[:-1]))
    operands: Any = [f"%{value.name}" for value in inputs]
    node = Node(name="n0", op="einsum", args=(equation, operands), spec=specs[-1])
    return OpGraph(dims={}, inputs=inputs, nodes=(node,), outputs=("n0",))


def _einsum(equation: str) -> Function:
    return Function(lambda *operands: torch.einsum(equation, *operands))


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[Shape]]:
    """An equation without diagonals and the shapes of its operands, some of which have size 1 where others are larger;
    spelled or not, with or without an ellipsis."""
    sizes = {letter: draw(st.integers(1, 5)) for letter in draw(st.permutations("abcdXY"))[: draw(st.integers(1, 6))]}
    dots = draw(st.lists(st.integers(1, 3), max_size=2))
    sides, shapes = list[str](), list[Shape]()
    for _ in range(draw(st.integers(1, 5))):
        letters = "".join(draw(st.permutations([*sizes]))[: draw(st.integers(0, 3))])
        shape = [sizes[letter] for letter in letters]
        if taken := draw(st.integers(0, len(dots))):
            place = draw(st.integers(0, len(letters)))
            letters = f"{letters[:place]}...{letters[place:]}"
            shape[place:place] = dots[len(dots) - taken :]
        sides.append(letters)
        shapes.append(tuple(size if draw(st.integers(0, 9)) else 1 for size in shape))
    used = draw(st.permutations(sorted(set("".join(sides)) - {"."})))
    out = "".join(used[: draw(st.integers(0, len(used)))])
    spelled = draw(st.sampled_from(["", f"->{out}", f"->...{out}"]))
    return ",".join(sides) + spelled, shapes


@settings(max_examples=300)
@given(drawn=equations())
def test_the_steps_of_a_drawn_equation_compute_it(drawn: tuple[str, list[Shape]]) -> None:
    equation, shapes = drawn
    operands = [spread(*shape).double() + number for number, shape in enumerate(shapes)]
    want = torch.einsum(equation, *operands)
    values: dict[str, Any] = {f"x{number}": operand for number, operand in enumerate(operands)}
    steps = expand(_graph(equation, shapes, tuple(want.shape))).nodes
    for node in steps:
        Operator(to_builtins(node), {}, "cpu")(values)
        assert node.op != "einsum" or str(node.args[0]).count(",") == 1
        assert values[node.name].shape == tuple(map(int, node.spec.shape))
    torch.testing.assert_close(values["n0"], want, rtol=1e-12, atol=1e-12)


@settings(max_examples=60)
@given(drawn=equations())
def test_no_drawn_equation_stays_pytorchs_on_cuda(drawn: tuple[str, list[Shape]]) -> None:
    equation, shapes = drawn
    want = torch.einsum(equation, *map(torch.zeros, shapes))
    found = partition(_graph(equation, shapes, tuple(want.shape), "f32"), "cuda")
    assert {part.kind for part in found.parts} <= {"kernel", "library"}


#: Equation, shapes, and the first letters of the kinds of the parts on CUDA: kernel, library.
PARTS: dict[str, tuple[str, list[Shape], str]] = {
    "mask between products": (
        "bclhn,bcshn,bhcls,bcshp->bclhp",
        [(2, 3, 8, 4, 6), (2, 3, 8, 4, 6), (2, 4, 3, 8, 8), (2, 3, 8, 4, 10)],
        "klkkl",
    ),
    "scaling before a product": ("bclhn,bhcl,bclhp->bchpn", [(2, 3, 8, 4, 6), (2, 4, 3, 8), (2, 3, 8, 4, 10)], "kkl"),
    "scaling of the smaller operand": (
        "bclhn,bchpn,bhcl->bclhp",
        [(2, 3, 8, 4, 6), (2, 3, 4, 10, 6), (2, 4, 3, 8)],
        "kl",
    ),
    "product between others' dimensions": ("bhzc,bchpn->bzhpn", [(2, 4, 5, 3), (2, 3, 4, 10, 6)], "kl"),
    "repeated in a batch": ("bhij,bhjk->bhik", [(2, 1, 3, 4), (2, 5, 4, 6)], "kklk"),
    "ellipsis": ("...ij,kj->...ki", [(2, 3, 5, 4), (6, 4)], "l"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PARTS)
def test_by_parts(name: str, tmp_path: Path) -> None:
    equation, shapes, kinds = PARTS[name]
    model, args = _einsum(equation), tuple(spread(*shape) for shape in shapes)
    graph = export(model, *args)
    parts = ByParts(graph, tmp_path)
    assert [kind[0] for kind in parts.kinds] == [*kinds]
    torch.testing.assert_close(parts(bindings(graph, model, args))[0], model(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bj,i->bij", [(3, 5, 7), (3, 7), (5,)]),
        ("bi,bj->bji", [(3, 5), (3, 7)]),
        ("bcl,bclp->lbp", [(3, 4, 9), (3, 4, 9, 5)]),
        ("bi,bi,bi->", [(3, 50), (3, 50), (3, 50)]),
    ],
)
def test_elementwise_steps_are_kernels_on_the_cpu(
    equation: str, shapes: list[Shape], dtype: torch.dtype, tmp_path: Path
) -> None:
    model, args = _einsum(equation), tuple(spread(*shape).to(dtype) for shape in shapes)
    assert not check_on_cpu(model, args, tmp_path).candidate.plan.residual


def _steps(equation: str, *shapes: Shape) -> list[str]:
    """The operators of the steps without views; of a product, the letters of its operands in the order of letters."""
    want = torch.einsum(equation, *map(torch.zeros, shapes))
    nodes = expand(_graph(equation, [*shapes], tuple(want.shape))).nodes
    products = {node.name: str(node.args[0]).partition("->")[0] for node in nodes if node.op == "einsum"}
    names = [" ".join(sorted(products[node.name].split(","))) if node.name in products else node.op for node in nodes]
    return [name for name in names if name not in ("permute", "view")]


def test_a_scaling_is_multiplied_where_that_is_least_work() -> None:
    """Into the smaller operand, or into the product if that is smaller."""
    assert _steps("ln,pn,l->lp", (64, 16), (32, 16), (64,)) == ["mul.Tensor", "ln pn"]
    assert _steps("ln,pn,l->lp", (64, 64), (32, 64), (64,)) == ["ln pn", "mul.Tensor"]
    assert _steps("ln,pn,n->lp", (64, 16), (32, 16), (16,)) == ["mul.Tensor", "ln pn"]


@pytest.mark.parametrize("count", [4, 7])
def test_products_are_taken_in_the_order_of_least_work(count: int) -> None:
    """Also where there are too many operands to try all orders."""
    sides = ("ab", "bc", "cd", "de", "ef", "fg", "gz")[-count:]
    shapes = [(64, 2 if side == "gz" else 64) for side in sides]
    found = _steps(f"{','.join(sides)}->{sides[0][0]}z", *shapes)
    assert found == [f"{side} {side[1]}z" for side in reversed(sides[:-1])]


@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [("ii,ij->j", [(3, 3), (3, 4)], "f32"), ("i,j->ij", [(3,), (4,)], "i64"), ("ij,jk->ik", [(3, 4), (4, 5)], "f32")],
    ids=["diagonal", "integers", "product as it is"],
)
def test_what_stays(equation: str, shapes: list[Shape], dtype: str) -> None:
    graph = _graph(equation, shapes, tuple(torch.einsum(equation, *map(torch.zeros, shapes)).shape), dtype)
    assert expand(graph) == graph


def test_on_the_cpu_an_einsum_with_a_matrix_product_stays_whole() -> None:
    args = (spread(3, 5, 4), spread(3, 4, 6), spread(3, 5))
    model = Function(lambda a, b, c: torch.einsum("bij,bjk,bi->bik", a, b, c).relu())
    graph = export(model, *args)
    assert classify(graph, "cpu") == "parts"
    assert [part.kind for part in partition(graph, "cpu").parts] == ["residual", "kernel"]


def _decays(rates: torch.Tensor) -> torch.Tensor:
    """What is left at each step of what each earlier step wrote, from the running sums of the rates; 0 of later
    ones."""
    steps = torch.arange(rates.shape[-1])
    apart = rates.unsqueeze(-1) - rates.unsqueeze(-2)
    return apart.masked_fill(steps.unsqueeze(-1) < steps, float("-inf")).exp()


class StateSpace(nn.Module):
    """A recurrence h ← exp(rate)·h + write ⊗ x, y = read · h in blocks: within a block by products with decays,
    between blocks by the states at their ends."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor, rates: torch.Tensor, reads: torch.Tensor, writes: torch.Tensor) -> torch.Tensor:
        x, rates, reads, writes = (one.unflatten(1, (-1, self.block)) for one in (x, rates, reads, writes))
        sums = rates.permute(0, 3, 1, 2).cumsum(-1)
        within = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", reads, writes, _decays(sums), x)
        ends = sums[..., -1:]
        states = torch.einsum("bclhn,bhcl,bclhp->bchpn", writes, (ends - sums).exp(), x)
        between = _decays(F.pad(ends.squeeze(-1), (1, 0)).cumsum(-1))
        states = torch.einsum("bhzc,bchpn->bzhpn", between, F.pad(states, (0, 0, 0, 0, 0, 0, 1, 0)))
        before = torch.einsum("bclhn,bchpn,bhcl->bclhp", reads, states[:, :-1], sums.exp())
        return (within + before).flatten(1, 2)


STATE_SPACE = StateSpace(8)
OPERANDS: Tensors = (spread(3, 32, 4, 10), -spread(3, 32, 4).abs(), spread(3, 32, 4, 6), spread(3, 32, 4, 6))


def test_a_state_space_has_no_part_of_pytorch_on_cuda(tmp_path: Path) -> None:
    graph = export(STATE_SPACE, *OPERANDS)
    parts = ByParts(graph, tmp_path)
    assert parts.kinds.count("library") == 5 and "residual" not in parts.kinds
    got, want = parts(bindings(graph, STATE_SPACE, OPERANDS))[0], STATE_SPACE(*(one.double() for one in OPERANDS))
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_state_space_compiles_for_cuda(tmp_path: Path) -> None:
    graph = export(STATE_SPACE, *OPERANDS)
    check_compiles(graph, initial(graph, "cuda", H200)[0], tmp_path)


@pytest.mark.gpu
def test_a_state_space_is_right_on_the_gpu(tmp_path: Path) -> None:
    check_on_gpu(STATE_SPACE, OPERANDS, tmp_path, 1, bound=1e-4)


def test_the_state_space_computes_its_recurrence() -> None:
    args = (spread(2, 8, 3, 4), -spread(2, 8, 3).abs(), spread(2, 8, 3, 5), spread(2, 8, 3, 5))
    x, rates, reads, writes = (one.double() for one in args)
    state, want = torch.zeros(2, 3, 4, 5, dtype=torch.float64), []
    for step in range(8):
        state = rates[:, step, :, None, None].exp() * state + x[:, step, :, :, None] * writes[:, step, :, None, :]
        want.append((state * reads[:, step, :, None, :]).sum(-1))
    torch.testing.assert_close(StateSpace(4)(x, rates, reads, writes), torch.stack(want, 1))
