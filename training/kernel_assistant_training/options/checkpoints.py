"""Finds the checkpoints of a run by the names that users may give: a number, or one of WORDS."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_assistant.errors import UsageError

_CHECKPOINT = re.compile(r"checkpoint-(\d{6})")
#: Names that are allowed besides a number.
WORDS = ("newest", "first", "all")


def checkpoints(run: Path) -> dict[int, Path]:
    """Returns the folders of a run's checkpoints, by the number of their iteration, in ascending order."""
    matches = ((_CHECKPOINT.fullmatch(path.name), path) for path in run.glob("checkpoint-*"))
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def chosen(run: Path, word: str) -> dict[int, Path]:
    """Returns the checkpoints that `word`, a number or one of WORDS, selects. Raises UsageError if there are none; its
    message lists the existing checkpoints."""
    there = checkpoints(run)
    if not there:
        below = sorted(path.name for path in run.glob("*") if path.is_dir() and checkpoints(path))
        named = f"those of {', '.join(below)} are runs of their own" if below else "name the folder of a run of PPO"
        raise UsageError(f"{run} has no checkpoints", named)
    if word == "all":
        return there
    if word in WORDS:
        number = max(there) if word == "newest" else min(there)
    elif not word.isdecimal() or int(word) not in there:
        named = ", ".join(map(str, there))
        raise UsageError(f"{run} has no checkpoint {word}", f"use one of {named}, or {', '.join(WORDS)}")
    else:
        number = int(word)
    return {number: there[number]}


def one(run: Path, word: str) -> Path:
    """Returns the checkpoint that `word` selects. Raises UsageError if it selects several checkpoints or none."""
    matching = chosen(run, word)
    if len(matching) > 1:
        raise UsageError(f"--checkpoint {word} is {len(matching)} checkpoints", "name one of them")
    return next(iter(matching.values()))
