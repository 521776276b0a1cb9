"""All families, in the order in which they are tried."""

from __future__ import annotations

from random import Random

from kernel_assistant.records.canonical import Canonical
from kernel_assistant_training.teacher.families import layout, scans, strided, windows
from kernel_assistant_training.teacher.nests import nests
from kernel_assistant_training.teacher.parts import in_parts
from kernel_assistant_training.teacher.rounding import rounded
from kernel_assistant_training.teacher.text.answer import Answer, Family

FAMILIES: tuple[Family, ...] = (
    *(nests.answers, windows.answers, scans.answers, strided.answers, layout.answers),
    nests.others,
)


def answers(task: Canonical, target: str, random: Random, count: int) -> list[Answer]:
    """At most `count` different answers, best guess first; [] if the teacher cannot write the task. Takes a few
    milliseconds.
    """
    task = rounded(task)
    found = one_kernel(task, target, random) or in_parts(task, target, random, one_kernel, count)
    return list({answer.source: answer for answer in found}.values())[:count]


def one_kernel(task: Canonical, target: str, random: Random) -> list[Answer]:
    for family in FAMILIES:
        found = family(task, target, random)
        if found:
            return found
    return []
