"""A class of the project as the list shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.session.class_state import ClassState


@dataclass(frozen=True)
class Rank:
    """Where a scan put the class (from 1), and the share of the whole program's time that it took."""

    place: int
    share: float


@dataclass(frozen=True)
class Module:
    """`line` counts from 1; `where` is the file as seen from the project."""

    path: Path
    where: str
    name: str
    line: int
    state: ClassState = field(default_factory=ClassState)
    rank: Rank | None = None

    @property
    def key(self) -> tuple[Path, str]:
        return self.path, self.name

    @property
    def spec(self) -> str:
        """FILE:CLASS, as every command takes it."""
        return f"{self.path}:{self.name}"


def ordered(modules: Iterable[Module]) -> tuple[Module, ...]:
    """By rank where a scan has told, then by file and line."""
    last = 1 << 30
    return tuple(sorted(modules, key=lambda one: (one.rank.place if one.rank else last, one.where, one.line)))


def matching(modules: Iterable[Module], words: str) -> tuple[Module, ...]:
    """Those whose file or class has every one of the words, in any case."""
    parts = words.lower().split()
    return tuple(one for one in modules if all(part in f"{one.where}:{one.name}".lower() for part in parts))


def said(state: ClassState) -> str:
    """The last result in a few characters."""
    if state.state in ("queued", "running", "interrupted"):
        return state.state
    if state.figure and (state.applied or state.improved):
        return state.figure.split(" ")[0]
    short = {
        "no_measurable_gain": "no gain",
        "at_limit": "at limit",
        "no_candidate": "none",
        "inconclusive": "inconclusive",
        "failed": "failed",
    }
    if state.outcome in short:
        return short[state.outcome]
    return "failed" if state.state == "failed" else "applied" if state.applied else ""
