"""What there is to know of each kind of stage: its command, what it starts from, where it leaves its model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CHECKPOINT = re.compile(r"checkpoint-\d{6}")


def _no_model(_: Path) -> Path | None:
    return None


def _itself(folder: Path) -> Path | None:
    return _folder(folder)


def _inside(folder: Path) -> Path | None:
    return _folder(folder / "model")


def _newest(folder: Path) -> Path | None:
    """Checkpoints are renamed to their name when they are whole."""
    return max((path for path in folder.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name)), default=None)


def _folder(path: Path) -> Path | None:
    return path if (path / "config.json").is_file() else None


@dataclass(frozen=True)
class Kind:
    """`command` stands behind `python -m`, `parser` is where its options can be read (module:name). `takes` are the
    options that the pipeline sets, `needs` those of them without which it cannot begin; `words` are always given.
    `model` finds what a folder of this kind has come to, if anything. Figures and control lie in its `watched`. One
    that `spreads` can be launched on several GPUs; of one that `grows` counts what it has, whenever it ends."""

    command: tuple[str, ...]
    parser: str
    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    model: Callable[[Path], Path | None] = field(default=_no_model)
    watched: str = "."
    spreads: bool = False
    grows: bool = False

    @property
    def learns(self) -> bool:
        return self.model is not _no_model


def _stage(module: str, *takes: str, **rest: object) -> Kind:
    where = f"kernel_assistant_training.{module}:parser"
    return Kind(("kernel_assistant_training", module), where, ("out", "seed", *takes), **rest)  # type: ignore[arg-type]


_PLAYS = ("base", "target", "shards", "known")
KINDS: Mapping[str, Kind] = {
    "synth": Kind(
        ("kernel_assistant_training", "synth"),
        "kernel_assistant_training.tasks.command:synth",
        ("out", "seed", "target"),
        grows=True,
    ),
    "label": Kind(
        ("kernel_assistant_training", "label"),
        "kernel_assistant_training.tasks.label:label",
        ("out", "target", "tasks"),
        ("tasks",),
        watched="labels",
        grows=True,
    ),
    "pretrain": _stage("pretrain", "base", words=("--resume",), model=_inside),
    "episodes": Kind(
        ("kernel_assistant_training", "episodes"),
        "kernel_assistant_training.episodes.__main__:episodes",
        ("out", "seed", "target"),
        grows=True,
    ),
    "sft": _stage("sft", "base", "episodes", needs=("base", "episodes"), model=_itself),
    "ppo-single": _stage("ppo_single", *_PLAYS, needs=("base",), model=_newest, spreads=True),
    "rft": _stage("rft", *_PLAYS, needs=("base",), model=_inside),
    "critic": _stage("critic", *_PLAYS, "trajectories", needs=("base",), model=_newest),
    "ppo-agent": _stage("ppo_agent", *_PLAYS, needs=("base",), model=_newest, spreads=True),
    "eval": Kind(
        ("kernel_assistant_training", "eval"),
        "kernel_assistant_training.evaluate:parser",
        ("out", "base", "target", "seed"),
        ("base",),
        grows=True,
    ),
    "export": Kind(
        ("kernel_assistant_training", "export"),
        "kernel_assistant_training.export:parser",
        (),
        ("base",),
    ),
}
#: With a clock of their own: `seconds` counts all starts together, or one start (they take what is left of the limit).
TIMED = ("pretrain", "sft", "rft", "synth", "label", "episodes")
TIMED_EACH_START = ("synth", "label", "episodes")


def words(options: Mapping[str, object]) -> list[str]:
    """Options as a person would type them; False and None are left out."""
    found: list[str] = []
    for name, value in options.items():
        word = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(word)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found += [word, *map(str, value)] if value else []
        elif value is not None and value is not False:
            found += [word, str(value)]
    return found
