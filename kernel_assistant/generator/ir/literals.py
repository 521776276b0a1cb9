"""Reads numbers that JSON does not have (inf, nan, complex numbers) from the form in which a graph writes them."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.records.graph import Operand
from kernel_assistant.worker.runner.plan import number_of


def as_number(operand: Operand, op: str) -> float:
    """An operand that must be an integer or a float. Raises Unsupported for any other; the message names the operator
    `op`.
    """
    if not isinstance(operand, int | float):
        raise Unsupported(f"{op} with {operand!r} where it needs a number")
    return operand


def decoded(operand: Operand, op: str) -> Operand:
    """`operand`, or the number that its text represents: `inf`, `-inf`, `nan`. Sizes, tensors and words stay as they
    are.

    Raises Unsupported for a complex number; the message names the operator `op`.
    """
    number = number_of(operand) if isinstance(operand, str) else None
    if isinstance(number, complex):
        raise Unsupported(f"{op} with the complex number {operand}")
    return operand if number is None else number
