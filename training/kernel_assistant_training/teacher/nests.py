"""Tasks that are one nest of loops: elementwise, or rows."""

from __future__ import annotations

from random import Random

from kernel_assistant.records.canonical import Canonical
from kernel_assistant_training.teacher.answer import Answer
from kernel_assistant_training.teacher.lowering import lowered
from kernel_assistant_training.teacher.pointwise import pointwise
from kernel_assistant_training.teacher.rows import rows
from kernel_assistant_training.teacher.sizes import NoForm

FORMS = {"pointwise": pointwise, "rows": rows}


def answers(task: Canonical, target: str, random: Random) -> list[Answer]:
    try:
        found = lowered(task, target)
        form = FORMS.get(found.nest.family)
        return [] if form is None else form(found, random)
    except NoForm:
        return []
