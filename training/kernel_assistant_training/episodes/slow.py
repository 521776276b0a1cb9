"""Slower versions of a right source, which stay right: the schedules of somebody who has not measured yet. Pure."""

from __future__ import annotations

import re
from random import Random

from kernel_assistant.agent.directives import constants_line, read_constants
from kernel_assistant_training.episodes.edits import in_code, one_of

_SET = re.compile(r"^// set: (.*)$", re.MULTILINE)
#: How much work a row is decides whether other threads are woken: a row of one element keeps all of it on this one.
_ALONE = in_code(r"(?<=ka::rows\()([^,()]+(?:\([^()]*\))?), [^,()]+(?=, \[)", r"\1, 1")


def slowed(source: str, target: str, random: Random) -> str | None:
    """One slower version; None where none is known."""
    edits = (_narrow, _idle, _small) if target == "cuda" else (_ALONE,)
    return one_of(*edits)(source, random)


def _narrow(source: str, random: Random) -> str | None:
    """Loads of single elements instead of vectors."""
    held = _constants(source)
    if held.get("V", 1) == 1:
        return None
    return _with(source, {"V": 1, **({"I": held["I"] * held["V"]} if "I" in held else {})})


def _idle(source: str, random: Random) -> str | None:
    """Room for four times the row: most of the registers hold nothing."""
    held = _constants(source)
    return _with(source, {"I": 4 * held["I"]}) if "I" in held else None


def _small(source: str, random: Random) -> str | None:
    """Blocks of one warp. Where a block holds a row, its threads have to hold all of it."""
    held = _constants(source)
    if held.get("T", 32) == 32 or ("I" in held and "row<T" in source) or "row_of<T" in source:
        return None
    return _with(source, {"T": 32})


def _constants(source: str) -> dict[str, int]:
    found = _SET.search(source)
    return read_constants(found[1]) if found else {}


def _with(source: str, changes: dict[str, int]) -> str:
    return _SET.sub(lambda found: constants_line({**read_constants(found[1]), **changes}), source, count=1)
