from __future__ import annotations

from operator import add, mul, sub
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.worker.graph.export import export_graph, trace
from kernel_assistant.worker.symbols import InexpressibleError, Symbols, evaluate_size, solve_dims
from tests.generator.harness import Function


def text(function: Any, *args: torch.Tensor) -> str:
    return from_builtins(export_graph(Function(function), args, {}), OpGraph).text()


X = torch.randn(8, 6)
#: Where a slice without an end ends.
END = (1 << 63) - 1


def _with_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return x * 2


LINES = {
    "high-level operators stay": (
        lambda x: F.layer_norm(F.gelu(x, approximate="tanh"), [6]).log_softmax(-1),
        (
            "%n0 = gelu(%x0, approximate=tanh) f32[B,6]\n%n1 = layer_norm(%n0, [6]) f32[B,6]\n"
            "%n2 = log_softmax.int(%n1, -1) f32[B,6]\n"
        ),
    ),
    "sizes are expressions": (lambda x: x.view(x.shape[0] * 3, 2), "%n0 = view(%x0, [B*3, 2]) f32[B*3,2]\n"),
    "half of the rows": (lambda x: x[::2], f"%n0 = slice.Tensor(%x0, 0, 0, {END}, 2) f32[(B+1)//2,6]/12,1\n"),
    "a size as a number": (lambda x: x.sum(0) / x.shape[0], "%n1 = div.Tensor(%n0, B) f32[6]\n"),
    "new tensors": (
        lambda x: x + torch.ones(x.shape[0], 1, device=x.device),
        "%n0 = ones([B, 1]) f32[B,1]\n%n1 = add.Tensor(%x0, %n0) f32[B,6]\n",
    ),
    "a tensor of one number": (
        lambda x: torch.min(x, torch.tensor(0.5)),
        "input x0 f32[B,6]\n%n0 = full([], 0.5) f32[]\n%n1 = minimum(%x0, %n0) f32[B,6]\n",
    ),
    "a tensor of numbers": (
        lambda x: x + torch.tensor([[2], [2], [-0.0], [0.0]]).T.repeat(1, 2)[:, :6],
        (
            "%n0 = full([2], 2.0) f32[2]\n%n1 = full([1], -0.0) f32[1]\n%n2 = full([1], 0.0) f32[1]\n"
            "%n3 = cat([%n0, %n1, %n2]) f32[4]\n%n4 = view(%n3, [4, 1]) f32[4,1]\n"
        ),
    ),
    "several results": (lambda x: x.max(1)[0], "%n0 = max.dim(%x0, 1) f32[B]\n%n1 = getitem(%n0, 0) f32[B]\n"),
    "infinities": (
        lambda x: x.masked_fill(x > 0, float("-inf")),
        "%n0 = gt.Scalar(%x0, 0) b1[B,6]\n%n1 = masked_fill.Scalar(%x0, %n0, -inf) f32[B,6]\n",
    ),
    "dtypes": (lambda x: x.to(torch.bfloat16), "%n0 = _to_copy(%x0, dtype=bf16) bf16[B,6]\n"),
    "strides where they are not contiguous": (lambda x: x.t() * 2, "f32[6,B]"),
    "nothing happens": (
        lambda x: F.dropout(x.clone().detach().contiguous(), 0.5, False).view(x.shape) * 2,
        "%n0 = mul.Tensor(%x0, 2)",
    ),
    "equal calls are one": (lambda x: x.exp() + x.exp(), "%n0 = exp(%x0) f32[B,6]\n%n1 = add.Tensor(%n0, %n0)"),
    "what nobody reads": (
        lambda x: (x.exp(), x * 2)[1],
        "input x0 f32[B,6]\n%n0 = mul.Tensor(%x0, 2) f32[B,6]\nreturn %n0\n",
    ),
    "an input as output": (lambda x: (x, x + 1), "return %x0, %n0\n"),
    "in place on own values": (lambda x: (x * 2).add_(1), "%n1 = add.Tensor(%n0, 1) f32[B,6]\n"),
    "gradients inside": (lambda x: x + _with_grad(x), "%n0 = mul.Tensor(%x0, 2) f32[B,6]\n"),
    "lists of tensors": (lambda x: torch.cat([x, x], 0), "%n0 = cat([%x0, %x0]) f32[B*2,6]\n"),
}


CLASSES = torch.tensor([0, 5, 1, 1, 2, 3, 4, 0])
#: Calls with other operands than X alone. Losses without reduction keep their rows.
CALLS = {
    "cross entropy": (lambda x, t: F.cross_entropy(x, t, reduction="none"), "f32[B]\nreturn", X, CLASSES),
    "negative log-likelihood": (lambda x, t: F.nll_loss(x, t, reduction="none"), "f32[B]\nreturn", X, CLASSES),
    "what reads a loss": (
        lambda x, t: F.cross_entropy(x, t, reduction="none").exp() * 2,
        "%n1 = exp(%n0) f32[B]\n%n2 = mul.Tensor(%n1, 2) f32[B]\n",
        *(X, CLASSES),
    ),
    "a reduced loss": (F.cross_entropy, "f32[]\nreturn", X, CLASSES),
    "unused inputs keep their number": (
        lambda a, b, c: a * c,
        "input x0 f32[B,6]\ninput x2 f32[B,6]\n%n0 = mul.Tensor(%x0, %x2)",
        *(X, torch.randn(3), X),
    ),
    "one tensor twice is two inputs": (lambda a, b: a * b, "mul.Tensor(%x0, %x1)", X, X),
    "strides of an input": (lambda x: x.exp(), "input x0 f32[B,6]/1,B", torch.randn(6, 8).t()),
    "what cannot be written fixes the sizes": (
        lambda x: x * (1.0 / x.shape[0]),
        "input x0 f32[8,6]\n%n0 = mul.Tensor(%x0, 0.125) f32[8,6]\nreturn %n0\n",
        X,
    ),
}


@pytest.mark.parametrize("name", [*LINES, *CALLS])
def test_text(name: str) -> None:
    function, expected, *args = CALLS[name] if name in CALLS else (*LINES[name], X)
    assert expected in text(function, *args)


def test_independent_and_fixed_dimensions() -> None:
    graph = text(lambda a, b: (a @ b.t(), a.sum()), X, torch.randn(5, 6))
    assert graph.startswith("dims B B2\ninput x0 f32[B,6]\ninput x1 f32[B2,6]\n") and "f32[B,B2]" in graph
    assert text(lambda a: a + 1, torch.randn(1, 6)).startswith("input x0 f32[1,6]")
    assert text(lambda a: a + 1, torch.tensor(2.0)).startswith("input x0 f32[]")
    assert text(lambda a: a.view(8, 2, 3) + 1, X).startswith("input x0 f32[8,6]")


def test_branch_on_a_size_limits_the_range() -> None:
    traced = trace(Function(lambda x: x * 2 if x.shape[0] > 4 else x), (X,), {})
    assert traced.ranges == {"B": (5, None)}
    assert trace(Function(lambda x: x * 2), (X,), {}).ranges == {"B": (1, None)}


def test_equal_modules_give_equal_text() -> None:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused, self.b, self.a = nn.Linear(2, 2), nn.Linear(6, 3), nn.Linear(3, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dim() == 2
            return self.a(F.dropout(self.b(x), training=self.training))

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 3), nn.Identity(), nn.Linear(3, 6))

        def forward(self, values: torch.Tensor, flag: bool = False) -> torch.Tensor:
            return self.layers(values)  # type: ignore[no-any-return]

    graphs = [from_builtins(export_graph(module.eval(), (X,), {}), OpGraph) for module in (One(), Other())]
    assert graphs[0].text() == graphs[1].text() and graphs[0].hash() == graphs[1].hash()


class FakeSize:
    """Has the shape of a SymInt: `.node.expr` is a sympy tree."""

    def __init__(self, expr: Any) -> None:
        self.node = self
        self.expr = expr


def _symbols(*expressions: Any) -> Symbols:
    symbols = Symbols()
    for expression in expressions:
        symbols.add(FakeSize(expression))
    return symbols


@st.composite
def size_trees(draw: st.DrawFn) -> Any:
    """Polynomials and floor divisions over two symbols, as torch builds them."""
    sympy = pytest.importorskip("sympy")
    from torch.utils._sympy.functions import FloorDiv

    b, c = (sympy.Symbol(name, integer=True, positive=True) for name in ("s77", "s3"))
    leaves = st.one_of(st.sampled_from([b, c]), st.integers(-9, 9).map(sympy.Integer))

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pairs = st.tuples(inner, inner)
        return st.one_of(
            *(pairs.map(lambda pair, apply=apply: apply(*pair)) for apply in (add, sub, mul)),
            st.tuples(inner, st.integers(1, 7)).map(lambda pair: FloorDiv(*pair)),
        )

    return draw(st.recursive(leaves, grow, max_leaves=6)), b, c


@given(size_trees(), st.integers(1, 50), st.integers(1, 50))
def test_written_sizes_have_the_value_of_the_tree(case: Any, first: int, second: int) -> None:
    tree, b, c = case
    symbols = _symbols(b, c)
    assert symbols.names == ["B", "B2"]
    dims = {"B": first, "B2": second}
    written = symbols.text(FakeSize(tree))
    assert set(written) <= set("B0123456789+-*/()")
    assert evaluate_size(written, dims) == int(tree.subs({b: first, c: second}))


def test_sizes_outside_the_language() -> None:
    sympy = pytest.importorskip("sympy")
    symbol = sympy.Symbol("s0", integer=True, positive=True)
    symbols = _symbols(symbol)
    for tree in (sympy.Max(symbol, 3), symbol**-1, sympy.Symbol("u0"), sympy.floor(symbol / symbol**2)):
        with pytest.raises(InexpressibleError):
            symbols.text(FakeSize(tree))
    with pytest.raises(ValueError, match="not an integer expression"):
        evaluate_size("B ** 2", {"B": 3})


@given(st.integers(1, 99), st.integers(1, 99), st.integers(1, 9), st.integers(0, 9))
def test_dimensions_are_found_again(first: int, second: int, slope: int, offset: int) -> None:
    dims = {"B": first, "B2": second}
    texts = ["7", f"B*{slope}+{offset}", "B2", "B*B2"]
    assert solve_dims([(text, evaluate_size(text, dims)) for text in texts]) == dims
    with pytest.raises(ValueError, match="does not fit"):
        solve_dims([("B", first), ("B", first + 1)])


def test_many_numbers_stay_a_buffer() -> None:
    numbers = [float(number) for number in range(65)]
    traced = trace(Function(lambda x: x + torch.tensor(numbers)), (torch.randn(3, 65),), {})
    ((kind, _, tensor),) = traced.constants.values()
    assert kind == "buffer" and tensor is not None and tensor.tolist() == numbers
    assert "full([65], 1.0)" in text(lambda x: x + torch.tensor([1.0] * 65), torch.randn(3, 65))
