"""Defines the steps that random tasks are made of: their class, and the table of all steps. A step is a function that
adds operators to a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_assistant_training.synth.builder import Builder, Tensor, Unfit

#: Adds operators to the graph: takes the current value and returns the next one. Raises Unfit if the value does not
#: fit.
Write = Callable[[Builder, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a random task: `write` adds operators to a graph and returns the new value. A family is a group of
    similar steps; `weight` is relative to the other steps of the family."""

    family: str
    name: str
    weight: float
    write: Write


STEPS: dict[str, list[Step]] = {}


def step(family: str, weight: float = 1.0, name: str = "") -> Callable[[Write], Write]:
    """Returns a decorator that registers a function as a step. The step's name is `name`, or else the function's
    name."""

    def register(write: Write) -> Write:
        STEPS.setdefault(family, []).append(Step(family, name or write.__name__.strip("_"), weight, write))
        return write

    return register


def need(condition: bool) -> None:
    """Raises Unfit if `condition`, which the step requires, is false."""
    if not condition:
        raise Unfit


def plain(value: Tensor) -> None:
    """Raises Unfit unless `value` is a contiguous floating-point tensor."""
    need(value.strides is None and value.floating)
