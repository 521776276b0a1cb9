"""Decides which operators are matrix products, and labels their dimensions for `contraction.py`."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.generator.library.contraction import Product
from kernel_assistant.generator.loops.strided import Resolver, View
from kernel_assistant.records import Node
from kernel_assistant.records.graph import Operand


@dataclass(frozen=True, slots=True)
class ProductTerms:
    """The terms of a node that computes a product: out = alpha · left·right + beta · `added`."""

    product: Product
    added: View | None = None
    alpha: float = 1.0
    beta: float = 1.0


def argument(node: Node, position: int, name: str, default: Operand = None) -> Operand:
    """Returns the argument of `node` at `position` or with the keyword `name`; `default`, PyTorch's default, if it has
    neither."""
    return decoded(node.args[position] if position < len(node.args) else node.kwargs.get(name, default), node.op)


def read_product(node: Node, values: Resolver) -> ProductTerms:
    """Returns the product that `node` computes. Raises Unsupported if the node is no product of two tensors."""
    reader = PRODUCTS.get(node.op.partition(".")[0])
    if reader is None:
        raise Unsupported(f"{node.op} is not a product")
    return reader(node, values)


def _number(operand: Operand) -> float:
    if isinstance(operand, bool) or not isinstance(operand, int | float):
        raise Unsupported(f"a factor that is not known: {operand!r}")
    return float(operand)


def _product(values: Resolver, node: Node, left: View, right: View, labels: tuple[str, str, str]) -> Product:
    out = values.buffer(node.name)
    if tuple(map(len, labels)) != (len(left.sizes), len(right.sizes), len(out.sizes)):
        raise Unsupported(f"{node.op} of tensors of other ranks")
    return Product(left, right, out, *labels)


def _linear(node: Node, values: Resolver) -> ProductTerms:
    left, right = (values.view(operand) for operand in node.args[:2])
    outer = string.ascii_uppercase[: len(left.sizes) - 1]
    bias = argument(node, 2, "bias")
    product = _product(values, node, left, right, (f"{outer}k", "nk", f"{outer}n"))
    return ProductTerms(product, None if bias is None else values.view(bias))


def _plain(labels: tuple[str, str, str]) -> Callable[[Node, Resolver], ProductTerms]:
    def read(node: Node, values: Resolver) -> ProductTerms:
        left, right = (values.view(operand) for operand in node.args[:2])
        return ProductTerms(_product(values, node, left, right, labels))

    return read


def _added(labels: tuple[str, str, str]) -> Callable[[Node, Resolver], ProductTerms]:
    def read(node: Node, values: Resolver) -> ProductTerms:
        added, left, right = (values.view(operand) for operand in node.args[:3])
        beta, alpha = _number(argument(node, 3, "beta", 1)), _number(argument(node, 4, "alpha", 1))
        return ProductTerms(_product(values, node, left, right, labels), added if beta else None, alpha, beta)

    return read


def _matmul(node: Node, values: Resolver) -> ProductTerms:
    left, right = (values.view(operand) for operand in node.args[:2])
    rank = max(len(left.sizes), len(right.sizes)) - 2
    outer = string.ascii_uppercase[: max(rank, 0)]

    def labelled(view: View, matrix: str, vector: str) -> tuple[View, str]:
        """Returns the view without its batch dimensions of size 1, and the labels of its dimensions: batch letters and
        `matrix`, or `vector` for a view of rank 1."""
        if len(view.sizes) == 1:
            return view, vector
        labels = outer[len(outer) - (len(view.sizes) - 2) :] + matrix
        kept = [at for at, label in enumerate(labels) if label in matrix or view.sizes[at] != 1]
        return view.picked(kept), "".join(labels[at] for at in kept)

    (left, of_left), (right, of_right) = labelled(left, "mk", "k"), labelled(right, "kn", "k")
    out = outer + ("m" if "m" in of_left else "") + ("n" if "n" in of_right else "")
    written = values.buffer(node.name)
    kept = [at for at, label in enumerate(out) if label in of_left + of_right or written.sizes[at] != 1]
    if len(written.sizes) != len(out):
        raise Unsupported(f"{node.op} of tensors of other ranks")
    labels = (of_left, of_right, "".join(out[at] for at in kept))
    alpha = _number(argument(node, 2, "alpha", 1))
    return ProductTerms(Product(left, right, written.picked(kept), *labels), alpha=alpha)


def _einsum(node: Node, values: Resolver) -> ProductTerms:
    equation, operands = node.args[0], argument(node, 1, "tensors")
    if not isinstance(equation, str) or not isinstance(operands, list) or len(operands) != 2:
        raise Unsupported("einsum of other than two tensors")
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    left_labels, comma, right_labels = inputs.partition(",")
    if not arrow or not comma or "." in equation or any(len(set(x)) != len(x) for x in (left_labels, right_labels)):
        raise Unsupported(f"einsum {equation}")
    left, right = (values.view(operand) for operand in operands)
    return ProductTerms(_product(values, node, left, right, (left_labels, right_labels, out)))


#: Products that repeat leading dimensions; the second one is ours, with a factor (`attention.py`).
MATMULS = ("matmul", "ka_matmul")

PRODUCTS: dict[str, Callable[[Node, Resolver], ProductTerms]] = {
    "linear": _linear,
    "mm": _plain(("mk", "kn", "mn")),
    "bmm": _plain(("Bmk", "Bkn", "Bmn")),
    "mv": _plain(("mk", "k", "m")),
    "addmm": _added(("mk", "kn", "mn")),
    "baddbmm": _added(("Bmk", "Bkn", "Bmn")),
    "addmv": _added(("mk", "k", "m")),
    **dict.fromkeys(MATMULS, _matmul),
    "einsum": _einsum,
}
