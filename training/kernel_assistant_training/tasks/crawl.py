"""Tasks of one installed operator each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from random import Random

from kernel_assistant_training.tasks.arguments import CannotBuild
from kernel_assistant_training.tasks.blocks import block_operators
from kernel_assistant_training.tasks.layouts import START_BATCH, draw, value
from kernel_assistant_training.tasks.operators import Operator, torch_operators
from kernel_assistant_training.tasks.records import TaskText
from kernel_assistant_training.tasks.writing import Draft, on_meta

#: Shapes and arguments tried for one text before the operator's last reason counts.
TRIES = 6
LICENCES = {"torch": "BSD-3-Clause", "transformers": "Apache-2.0"}


@dataclass(frozen=True)
class Unbuilt:
    """Why no text came of an operator."""

    operator: str
    reason: str


def catalog(blocks: int, seed: int) -> list[Operator]:
    """All operators of torch, and `blocks` of transformers' (all for -1), in an order that follows from the seed."""
    found = block_operators()
    Random(f"blocks {seed}").shuffle(found)
    every = [*torch_operators(), *(found if blocks < 0 else found[:blocks])]
    Random(f"catalog {seed}").shuffle(every)
    return every


def text_of(operator: Operator, number: int, random: Random, target: str) -> TaskText | Unbuilt:
    """A task of this operator alone, which the meta device has run."""
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
    """With attribution on top. `names` are the operators' full ones, overloads included."""
    said = tuple(dict.fromkeys(attribution(name) for name in names))
    used = tuple(use.operator for use in draft.uses)
    return TaskText(
        number=number,
        source=source,  # type: ignore[arg-type]  # one of the literals: an operator's own, or "composed"
        operators=used,
        attribution=said,
        text=draft.text(START_BATCH, said),
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


def unbuilt(found: list[Unbuilt]) -> Counter[str]:
    """How many by reason."""
    return Counter(one.reason for one in found)
