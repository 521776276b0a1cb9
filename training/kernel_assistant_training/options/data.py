"""The options of the stages that make data, and of the commands for folders and whole runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from kernel_assistant_training.options.command_line import argument, option
from kernel_assistant_training.options.groups import Clock, NarrowArguments, Target

_ANY = 1 << 62
_THIS = "the one that runs this"
_FOLDER = click.Path(file_okay=False, path_type=Path)


@dataclass(frozen=True)
class SynthArguments:
    """Make and filter tasks; shards and a data card lie in the folder afterwards: docs/tasks.md."""

    out: Path = option(help="Folder; it is continued.", type=_FOLDER)
    count: int = option(6000, "Tasks that are kept.")
    target: Target = option(help="Device kind that the tasks are measured on.")
    recipe: Literal["base", "small", "smoke"] = option("base", "Window of run times that are kept.")
    seed: int = option(0, "Seed of the stream of candidates.")
    blocks: int = option(60, "Classes of transformers; -1: all.")
    variants: int = option(2, "Texts of a crawled operator.")
    backend: Literal["inductor", "aot_eager"] = option("inductor", "Backend of torch.compile.", flag="--compile")
    workers: int = option(1, "Probes, to which GPUs are given in turn.")
    most: int = option(_ANY, "Candidates after which it ends anyway.")
    seconds: float = option(float("inf"), "Seconds after which no candidate begins.")
    answers: int = option(0, "Tasks that a language model is asked for.")
    endpoint: str = option("", "URL of that model (OpenAI-compatible).")
    model: str = option("", "Model there, or a name that `models list` knows.")
    sandbox: str = option("auto", "Sandbox of generated code.")


@dataclass(frozen=True)
class LabelArguments:
    """Judge the generator's candidates for tasks; rows lie in the folder as Parquet afterwards: docs/tasks.md."""

    out: Path = option(help="Folder; it is continued.", type=_FOLDER)
    tasks: Path | None = option(
        None, "Folder of shards.", shown="that of --out", type=click.Path(exists=True, file_okay=False, path_type=Path)
    )
    target: Target = option(help="Device kind of the kernels.")
    drawn: int = option(0, "Tasks that are drawn into --out, if there are no shards: equally many of each kind.")
    seed: int = option(0, "Seed of the drawn tasks.")
    candidates: int = option(16, "Candidates of a task at most.")
    tasks_most: int = option(_ANY, "Tasks of the shards at most, the first ones.")
    rows_most: int = option(_ANY, "Rows, earlier ones included, after which no task begins.")
    seconds: float = option(float("inf"), "Seconds after which no task begins.")
    processes: int = option(1, "Judges, to which GPUs are given in turn.")
    builders: int = option(1, "Compilers of each judge at a time.")
    sandbox: str = option("auto", "Sandbox of generated code.")
    python: str = option(sys.executable, "Interpreter with torch.", shown=_THIS)


@dataclass(frozen=True)
class EpisodesArguments(NarrowArguments):
    """Play lessons in the real environment: docs/episodes.md."""

    target: Target = option(help="Device kind of the kernels.")
    seconds: float = option(help="Seconds after which no lesson begins.")
    out: Path = option(help="Folder; it is continued.", type=_FOLDER)
    tasks: int = option(_ANY, "Tasks of a process at most.")
    lessons: int = option(8, "Lessons of a task at most.")
    seed: int = option(0, "Seed of the stream of tasks.")
    processes: int = option(1, "Players that share the device.")
    cores: int = option(0, "Cores that each process alone measures on (target cpu); 0: all share.")
    builders: int = option(1, "Compilers of each player at a time.")
    faults: float = option(0.55, "Share of lessons with a mistake.")
    estimated_compile: float = option(0.5, "Share of lessons with an estimated time of torch.compile.")
    in_full: float = option(0.15, "Share of lessons whose best candidate is verified at other sizes too.")
    clock: Clock = option("measured", "Clock of the times; nominal: times that nobody measured.")
    python: str = option(sys.executable, "Interpreter with torch.", shown=_THIS)


@dataclass(frozen=True)
class TokenizerArguments:
    """Train the vocabulary on the project's own corpus and write it into FOLDER."""

    folder: tuple[Path, ...] = argument("FOLDER")
    pairs: int = option(20_000, "Conversations of each target.")


@dataclass(frozen=True)
class PipelineArguments:
    """Run all stages of a recipe, one after another: docs/training_recipes.md."""

    recipe: str = option(help="Recipe: its name, or a TOML file.")
    out: Path = option(help="Folder of the run; one that is there goes on.")
    base: str | None = option(None, "Model to begin with: scratch, shipped, a folder, a GGUF file or OWNER/NAME.")
    seed: int | None = option(None, "Seed of all stages.", shown="the recipe's")
    first: str = option("", "Stage that is done again, with those behind it.", flag="--from", metavar="STAGE")
    last: str = option("", "Stage that is the last to run now.", flag="--until", metavar="STAGE")
    name: str = option("", "Name under which the model is registered.", shown="that of the folder")
    use: bool = option(False, "Selection of the model: it is used from then on.")
    dry_run: bool = option(False, "Stages and their options alone: nothing is done.")
