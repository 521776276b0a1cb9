"""A module class of the project, as the list of modules shows it. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.session.reporting.class_state import ClassState


@dataclass(frozen=True)
class Rank:
    """The result of a scan for a class: its position in the scan's ranking (`position`, from 1), and its share of the
    program's time (0 to 1)."""

    position: int
    share: float


@dataclass(frozen=True)
class Module:
    """A module class in the list. `line` counts from 1; `where` is the path relative to the project; `rank` is None if
    no scan has ranked the class."""

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
        """FILE:CLASS, the form that commands take."""
        return f"{self.path}:{self.name}"


def ordered(modules: Iterable[Module]) -> tuple[Module, ...]:
    """Sorts the classes by their rank in the scan; classes that it has not ranked come last, by file and line."""
    last = 1 << 30
    return tuple(sorted(modules, key=lambda one: (one.rank.position if one.rank else last, one.where, one.line)))


def matching(modules: Iterable[Module], words: str) -> tuple[Module, ...]:
    """Returns the modules whose file or class name contains every word of `words` (separated by spaces), ignoring
    case."""
    parts = words.lower().split()
    return tuple(one for one in modules if all(part in f"{one.where}:{one.name}".lower() for part in parts))


def said(state: ClassState) -> str:
    """Describes the state of a class in a few characters: `running`, a gain such as `2.1× compile`, the gain of an
    earlier job whose kernels can be applied, or an outcome such as `no gain`; "" if there is nothing to say."""
    if state.state in ("queued", "running", "interrupted"):
        return state.state
    if state.figure and (state.applied or state.applicable):
        return _short(state.figure)
    if state.offered and not state.applied:
        return f"{_short(state.offered)} job {state.offer}"
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


def _short(figure: str) -> str:
    """Shorten `2.1× vs torch.compile` to `2.1× compile`."""
    return figure.replace(" vs ", " ").replace("torch.compile", "compile")
