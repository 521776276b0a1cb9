"""Slower versions of a right source that stay right: schedules of an author who has not measured yet. Pure."""

from __future__ import annotations

import re
from random import Random

from kernel_assistant.agent.directives import constants_line, read_constants
from kernel_assistant_training.lessons.edits import in_code, one_of

_SET = re.compile(r"^// set: (.*)$", re.MULTILINE)
#: The work of a row decides whether other threads are used: with one element, one thread computes everything.
_ALONE = in_code(r"(?<=ka::rows\()([^,()]+(?:\([^()]*\))?), [^,()]+(?=, \[)", r"\1, 1")


def slowed(source: str, target: str, random: Random) -> str | None:
    """One slower version; None if none applies."""
    edits = (_narrow, _idle, _small) if target == "cuda" else (_ALONE,)
    return one_of(*edits)(source, random)


def _narrow(source: str, random: Random) -> str | None:
    """Loads single elements instead of vectors."""
    held = _constants(source)
    if held.get("V", 1) == 1:
        return None
    return _with(source, {"V": 1, **({"I": held["I"] * held["V"]} if "I" in held else {})})


def _idle(source: str, random: Random) -> str | None:
    """Makes room for four times the row in registers; most of it is never used."""
    held = _constants(source)
    return _with(source, {"I": 4 * held["I"]}) if "I" in held else None


def _small(source: str, random: Random) -> str | None:
    """Makes blocks of one warp. Returns None if a block holds a row, because its threads have to hold all of it."""
    held = _constants(source)
    if held.get("T", 32) == 32 or ("I" in held and "row<T" in source) or "row_of<T" in source:
        return None
    return _with(source, {"T": 32})


def _constants(source: str) -> dict[str, int]:
    match = _SET.search(source)
    return read_constants(match[1]) if match else {}


def _with(source: str, changes: dict[str, int]) -> str:
    return _SET.sub(lambda match: constants_line({**read_constants(match[1]), **changes}), source, count=1)
