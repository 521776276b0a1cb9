"""Tasks that are one loop nest: elementwise ones and rows."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kernel_assistant.generator.loops.nest import Access
from kernel_assistant.generator.lower.movement.gathers import GATHERS
from kernel_assistant.generator.lower.movement.layout import JOINING
from kernel_assistant.generator.lower.movement.layout_resize import RESIZING
from kernel_assistant.generator.lower.windows_lower import WINDOWS
from kernel_assistant.records.canonical import Canonical
from kernel_assistant_training.teacher.nests.pointwise import pointwise
from kernel_assistant_training.teacher.nests.rows import rows
from kernel_assistant_training.teacher.text.answer import Answer
from kernel_assistant_training.teacher.text.lowering import Lowered, lowered
from kernel_assistant_training.teacher.text.sizes import NoForm, Sizes

FORMS = {"pointwise": pointwise, "rows": rows}
#: Least pixels of a channel for which a block or a warp a channel is faster.
MANY_PIXELS = 256
#: Operators that read at computed positions, or do not loop over rows.
ELSEWHERE = frozenset(
    {
        *(GATHERS.keys() | RESIZING.keys()),
        *(name for name in JOINING if name != "unbind"),
        *(name for name in WINDOWS if "adaptive" not in name),
        *("cumsum", "cumprod", "cummax", "cummin"),
    }
)


def answers(task: Canonical, target: str, random: Random) -> list[Answer]:
    """Answers for nests whose last loop runs along memory."""
    if _elsewhere(task):
        return []
    try:
        found = lowered(task, target)
        form = FORMS.get(found.nest.family)
        if form is None or any(_has_gaps(found, access) for access in found.accesses):
            return []
        return [*(_by_channels(found, random) if target == "cuda" else []), *form(found, random)]
    except NoForm:
        return []


def _by_channels(found: Lowered, random: Random) -> list[Answer]:
    """Elementwise work with several numbers for each channel. They are read, and combined, once for all pixels of a
    channel."""
    nest, axes = found.nest, found.nest.outer
    if nest.family != "pointwise" or found.sizes.value(nest.size(nest.inner)) < MANY_PIXELS:
        return []
    numbers = [one for one in found.accesses if one.linear(nest.inner) == 0 and any(axis in one.index for axis in axes)]
    if len(numbers) < 2:
        return []
    turned = replace(nest, outer=[*nest.outer], reduced=[*nest.inner], inner=[])
    own = Sizes(found.task, found.target, found.sizes.numbers)
    try:
        return rows(replace(found, nest=turned, sizes=own), random)[:2]
    except NoForm:
        return []


def others(task: Canonical, target: str, random: Random) -> list[Answer]:
    """Answers for any layout: reductions over dimensions that are not the last, and tensors with gaps in memory."""
    if _elsewhere(task):
        return []
    try:
        found = lowered(task, target)
        nest = found.nest
        if nest.family == "cols":
            nest.outer, nest.inner = [*nest.outer, *nest.inner], []
            return rows(found, random)
        if nest.family != "pointwise":
            return []
        if target == "cuda" and all(access.linear([*nest.outer, *nest.inner]) == 1 for access, _ in nest.stores):
            return pointwise(found, random)
        # The last loop is the row.
        nest.reduced, nest.inner = nest.inner, []
        return rows(found, random)
    except NoForm:
        return []


def _elsewhere(task: Canonical) -> bool:
    """Whether the task has an operator whose loops other families write."""
    return any(node.op.partition(".")[0] in ELSEWHERE for node in task.graph.nodes)


def _has_gaps(found: Lowered, access: Access) -> bool:
    last = (found.nest.inner or found.nest.reduced)[-1:]
    return any(access.index.get(axis, 0) not in (0, 1) for axis in last)
