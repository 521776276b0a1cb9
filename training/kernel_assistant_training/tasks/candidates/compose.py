"""Composes tasks of two to five operators of installed packages. Each operator is written for the output of the
operator before it."""

from __future__ import annotations

from random import Random

from kernel_assistant_training.tasks.candidates.arguments import CannotBuild, Value
from kernel_assistant_training.tasks.candidates.crawl import task_text
from kernel_assistant_training.tasks.candidates.operators import Operator
from kernel_assistant_training.tasks.candidates.writing import META_BATCH, Draft, on_meta
from kernel_assistant_training.tasks.layouts import START_BATCH, draw, value
from kernel_assistant_training.tasks.records import TaskText

#: Probability of each number of operators in a task.
LEVELS = {2: 0.5, 3: 0.25, 4: 0.15, 5: 0.1}
#: Operators that are tried for one position.
TRIES = 12
#: Probability that an operand of the right shape is an earlier value instead of a new input.
EARLIER = 0.4
_FLOATS = ("torch.float32", "torch.bfloat16", "torch.float16")


def chainable(operators: list[Operator]) -> list[Operator]:
    """Returns the operators that can be composed: those of torch, not the blocks of transformers."""
    return [one for one in operators if one.source != "transformers"]


def composed(operators: list[Operator], number: int, seed: int, target: str) -> TaskText | None:
    """Returns task `number` of the stream of composed tasks; None if too few operators fitted. `operators` are the
    result of `chainable`."""
    random = Random(f"compose {seed} {number}")
    level = random.choices(list(LEVELS), list(LEVELS.values()))[0]
    at = value(random, target)
    draft, names = Draft(at, draw(at, random, positive=0.15)), list[str]()
    shapes = {"x0": at}
    while len(names) < level:
        chosen = _next(draft, operators, at, shapes, random)
        if chosen is None:
            return None
        operator, after = chosen
        names.append(operator.name)
        if after is None:
            break
        at = after
        shapes[f"v{len(draft.uses) - 1}"] = at
    return task_text(number, "composed", draft, tuple(names)) if len(names) > 1 else None


def _next(
    draft: Draft, operators: list[Operator], at: Value, shapes: dict[str, Value], random: Random
) -> tuple[Operator, Value | None] | None:
    """Appends to the draft an operator that accepts the value `at`. `shapes` has the earlier values by name, which may
    become further operands. Returns the operator and its output; the output is None if no operator can follow. Returns
    None if no operator fits."""
    index = len(draft.uses)
    fitting = [one for one in operators if one.rank in (0, at.rank)]
    for operator in random.sample(fitting, min(TRIES, len(fitting))):
        try:
            use = operator.write(at, random)
        except CannotBuild:
            continue
        draft.uses.append(use)
        for number, extra in enumerate(use.extra):
            earlier = [name for name, shape in shapes.items() if shape.shape[1:] == extra.shape and shape == at]
            if earlier and "randn" in extra.draw and random.random() < EARLIER:
                draft.links.setdefault(index, {})[number] = random.choice(earlier)
        try:
            outputs = on_meta(draft.text(START_BATCH))
        except Exception:  # noqa: BLE001 - another operator is tried in its place
            draft.uses.pop()
            draft.links.pop(index, None)
            continue
        if len(outputs) > 1:
            draft.firsts.add(index)
        first = outputs[0]
        goes_on = first.dim() > 1 and first.shape[0] == META_BATCH and str(first.dtype) in _FLOATS and first.numel()
        after = Value((START_BATCH, *first.shape[1:]), str(first.dtype).removeprefix("torch."))
        return operator, after if goes_on else None
    return None
