"""Reads numbers that JSON does not have (inf, nan, complex numbers) from the form in which a graph writes them, and
rounds numbers to float32."""

from __future__ import annotations

import math
from struct import pack, unpack

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.records.graph import Operand
from kernel_assistant.worker.runner.plan import number_of


def as_number(operand: Operand, op: str) -> float:
    """Returns `operand` if it is an int or a float. Raises Unsupported otherwise, with a message that names the
    operator `op`.
    """
    if not isinstance(operand, int | float):
        raise Unsupported(f"{op} with {operand!r} where it needs a number")
    return operand


def decoded(operand: Operand, op: str) -> Operand:
    """Returns the float that the text `operand` represents if it is `inf`, `-inf` or `nan`. Returns everything else
    unchanged: numbers, sizes, tensors, words.

    Raises Unsupported for a complex number, with a message that names the operator `op`.
    """
    number = number_of(operand) if isinstance(operand, str) else None
    if isinstance(number, complex):
        raise Unsupported(f"{op} with the complex number {operand}")
    return operand if number is None else number


def to_float32(number: float) -> float:
    """Returns the number rounded to float32; infinity, with the number's sign, if it is too large for float32."""
    try:
        return float(unpack("f", pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)
