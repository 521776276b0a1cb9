"""The class of a step, and the table of all steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_assistant_training.synth.builder import Builder, Tensor, Unfit

#: Adds operators to the graph: takes the current value and returns the next one. Raises Unfit if the value does not
#: fit.
Write = Callable[[Builder, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Step:
    """`weight` is relative to the other steps of its family."""

    family: str
    name: str
    weight: float
    write: Write


STEPS: dict[str, list[Step]] = {}


def step(family: str, weight: float = 1.0, name: str = "") -> Callable[[Write], Write]:
    """Register the decorated function as a step."""

    def register(write: Write) -> Write:
        STEPS.setdefault(family, []).append(Step(family, name or write.__name__.strip("_"), weight, write))
        return write

    return register


def need(condition: bool) -> None:
    """Raises Unfit if the step's condition does not hold."""
    if not condition:
        raise Unfit


def plain(value: Tensor) -> None:
    """Raises Unfit unless `value` is a contiguous floating tensor."""
    need(value.strides is None and value.floating)
