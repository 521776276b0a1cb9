"""Makes tasks that consist of one operator of an installed package."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from random import Random

from kernel_assistant_training.tasks.candidates.arguments import CannotBuild
from kernel_assistant_training.tasks.candidates.blocks import block_operators
from kernel_assistant_training.tasks.candidates.operators import Operator, torch_operators
from kernel_assistant_training.tasks.candidates.writing import Draft, on_meta
from kernel_assistant_training.tasks.layouts import START_BATCH, draw, value
from kernel_assistant_training.tasks.records import TaskText

#: Shapes and arguments that are tried for one text before the operator counts as unbuilt, for its last reason.
TRIES = 6
LICENCES = {"torch": "BSD-3-Clause", "transformers": "Apache-2.0"}


@dataclass(frozen=True)
class Unbuilt:
    """A record that no source could be written for an operator, with the reason."""

    operator: str
    reason: str


def catalog(blocks: int, seed: int) -> list[Operator]:
    """Returns all operators of torch, and `blocks` modules of models in transformers (-1: all), in an order that
    depends on the seed."""
    transformers = block_operators()
    Random(f"blocks {seed}").shuffle(transformers)
    every = [*torch_operators(), *(transformers if blocks < 0 else transformers[:blocks])]
    Random(f"catalog {seed}").shuffle(every)
    return every


def text_of(operator: Operator, number: int, random: Random, target: str) -> TaskText | Unbuilt:
    """Returns a task of this operator alone, which ran on the meta device; or, after `TRIES` attempts, an Unbuilt with
    the reason why there is none."""
    reason = ""
    for _ in range(TRIES):
        first = value(random, target, operator.rank)
        draft = Draft(first, draw(first, random))
        try:
            draft.uses.append(operator.write(first, random))
            on_meta(draft.text(START_BATCH))
        except CannotBuild as error:
            reason = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - whatever an operator says to arguments that rules made is counted
            reason = f"{type(error).__name__} on the meta device"
            continue
        return task_text(number, operator.source, draft, (operator.name,))
    return Unbuilt(operator.name, reason)


def task_text(number: int, source: str, draft: Draft, names: tuple[str, ...]) -> TaskText:
    """Returns the task of a draft (operators written one after another), with a comment line for each attribution on
    top. `names` are full names of operators, overloads included."""
    lines = tuple(dict.fromkeys(attribution(name) for name in names))
    used = tuple(use.operator for use in draft.uses)
    return TaskText(
        number=number,
        source=source,  # type: ignore[arg-type]  # one of the literals: an operator's own, or "composed"
        operators=used,
        attribution=lines,
        text=draft.text(START_BATCH, lines),
    )


def attribution(name: str) -> str:
    package = name.partition(".")[0]
    return f"{name}: {package} {_version(package)}, {LICENCES[package]}"


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def unbuilt(failures: list[Unbuilt]) -> Counter[str]:
    """Returns reason → number of failures with this reason."""
    return Counter(one.reason for one in failures)
