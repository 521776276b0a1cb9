"""Tasks that are one nest of loops: elementwise, or rows."""

from __future__ import annotations

from random import Random

from kernel_assistant.generator.nest import Access
from kernel_assistant.records.canonical import Canonical
from kernel_assistant_training.teacher.answer import Answer
from kernel_assistant_training.teacher.lowering import Lowered, lowered
from kernel_assistant_training.teacher.pointwise import pointwise
from kernel_assistant_training.teacher.rows import rows
from kernel_assistant_training.teacher.sizes import NoForm

FORMS = {"pointwise": pointwise, "rows": rows}


def answers(task: Canonical, target: str, random: Random) -> list[Answer]:
    """Where neighbours along the last loop are neighbours in memory."""
    return _answers(task, target, random, gaps=False)


def with_gaps(task: Canonical, target: str, random: Random) -> list[Answer]:
    """Any layout: right, and slow where nothing moves along neighbours."""
    return _answers(task, target, random, gaps=True) if target == "cuda" else []


def _answers(task: Canonical, target: str, random: Random, gaps: bool) -> list[Answer]:
    try:
        found = lowered(task, target)
        form = FORMS.get(found.nest.family)
        if form is None or (not gaps and any(_has_gaps(found, access) for access in found.accesses)):
            return []
        return form(found, random)
    except NoForm:
        return []


def _has_gaps(found: Lowered, access: Access) -> bool:
    last = (found.nest.inner or found.nest.reduced)[-1:]
    return any(access.index.get(axis, 0) not in (0, 1) for axis in last)
