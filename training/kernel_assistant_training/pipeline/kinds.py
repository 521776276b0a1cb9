"""The kinds of stages: for each kind its command, its inputs and the pattern of the files of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernel_assistant_training.options.commands import COMMANDS


@dataclass(frozen=True)
class StageKind:
    """A kind of stage. `command` follows `python -m`; `options` is the dataclass of its options. `takes` are the
    options that the pipeline sets; of these, `needs` are required, and `arguments` are passed as words without a name.
    `words` are always passed. `model` is a pattern for a file in the folder of the model that the stage makes; "" if it
    makes none. Metrics and control files are in the subfolder `watched`. `spreads`: whether the stage can be launched
    on several GPUs. `grows`: whether its output is usable even if the stage ends early. `timed`: whether its option
    `seconds` limits all starts of the stage together, or each start, which then gets the rest of the stage's limit."""

    command: tuple[str, ...]
    options: type[Any]
    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    model: str = ""
    watched: str = "."
    spreads: bool = False
    grows: bool = False
    timed: Literal["", "all starts", "each start"] = ""

    def model_in(self, folder: Path) -> Path | None:
        """Returns the newest model in the folder of a stage; None if there is none."""
        return max((file.parent for file in folder.glob(self.model)), default=None) if self.model else None


def _stage(name: str, *takes: str, **rest: Any) -> StageKind:
    return StageKind(("kernel_assistant_training", name), COMMANDS[name].options, takes, **rest)


_TUNES = ("out", "seed", "base")
_PLAYS = (*_TUNES, "target", "shards", "known")
_INSIDE = "model/config.json"
#: A checkpoint gets this name only when it is complete.
_CHECKPOINT = f"checkpoint-{'[0-9]' * 6}/*"
_DATA: dict[str, Any] = {"grows": True, "timed": "each start"}
KINDS: Mapping[str, StageKind] = {
    "synth": _stage("synth", "out", "seed", "target", **_DATA),
    "label": _stage("label", "out", "target", "tasks", needs=("tasks",), watched="labels", **_DATA),
    "pretrain": _stage("pretrain", *_TUNES, words=("--resume",), model=_INSIDE, timed="all starts"),
    "episodes": _stage("episodes", "out", "seed", "target", **_DATA),
    "sft": _stage("sft", *_TUNES, "episodes", needs=("base", "episodes"), model="config.json", timed="all starts"),
    "ppo-single": _stage("ppo_single", *_PLAYS, needs=("base",), model=_CHECKPOINT, spreads=True),
    "rft": _stage("rft", *_PLAYS, needs=("base",), model=_INSIDE, timed="all starts"),
    "critic": _stage("critic", *_PLAYS, "trajectories", needs=("base",), model=_CHECKPOINT),
    "ppo-agent": _stage("ppo_agent", *_PLAYS, needs=("base",), model=_CHECKPOINT, spreads=True),
    "eval": _stage("eval", "out", "base", "target", "seed", needs=("base",), grows=True),
    "export": _stage("export", "base", "file", needs=("base",), arguments=("base", "file")),
}


def words(options: Mapping[str, object]) -> list[str]:
    """Returns options as command-line arguments, such as `--keep-every 5`; leaves out options that are None, False or
    an empty list."""
    arguments: list[str] = []
    for name, value in options.items():
        if value is None or value is False or value == []:
            continue
        several = isinstance(value, Sequence) and not isinstance(value, str)
        values = value if several else [] if value is True else [value]
        arguments += [f"--{name.replace('_', '-')}", *map(str, values)]  # type: ignore[call-overload]
    return arguments
