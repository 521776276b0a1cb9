"""`kernel-assistant train episodes`: plays lessons (planned conversations) in the real environment, in several
processes at once, and summarises their results."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import click

from kernel_assistant_training.episodes.lines import Episode, Failure, read_lines
from kernel_assistant_training.episodes.player import LessonRunner
from kernel_assistant_training.evaluation.processes import own_cores, side_by_side
from kernel_assistant_training.nominal import unbounded
from kernel_assistant_training.options.data import EpisodesArguments
from kernel_assistant_training.synth.narrow import Narrow

#: A failed process is replaced if it ran longer than this, and this many seconds are left.
LIVED = 30.0
#: What a process plays: the options, when it ends, its part, the cores that it measures on and those of its compilers.
Part = tuple[EpisodesArguments, float, int, tuple[int, ...], tuple[int, ...]]


def main(asked: EpisodesArguments) -> None:
    """Plays episodes and prints the summary of the run."""
    click.echo(json.dumps(run(asked), indent=2))


def run(asked: EpisodesArguments) -> dict[str, Any]:
    """Plays episodes in several processes until `asked.seconds` have passed. Returns the summary, a dictionary that is
    also written to the folder as JSON.

    With `cores`, each process measures on that many cores of its own, and all processes compile on the remaining cores.
    The summary lists the exit codes of processes that failed.
    """
    asked.out.mkdir(parents=True, exist_ok=True)
    before = _count(asked)
    began = time.monotonic()
    parts = _parts(asked, began + asked.seconds)
    if asked.clock == "nominal":
        unbounded(asked.target, asked.out)
    failed = list[int]()
    if asked.cores:
        # Measure the bandwidth while the machine is quiet, before any lesson begins.
        failed = _side_by_side([(asked, began, *parts[0][2:])])
    if len(parts) == 1 and not asked.cores:
        _play(*parts[0])
    elif not failed:
        failed = _side_by_side(parts)
    seconds = time.monotonic() - began
    summary = {**summarise(asked.out, asked.target), "seconds": round(seconds, 1), "failed_processes": failed}
    played = _count(asked) - before
    summary["episodes_per_second"] = round(played / seconds, 3)
    # The time of children covers workers, runners, compilers and their own children.
    used = [getrusage(whose) for whose in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    summary["cpu_seconds_per_episode"] = round(sum(one.ru_utime + one.ru_stime for one in used) / max(played, 1), 2)
    (asked.out / f"summary-{asked.target}.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    return summary


def _parts(asked: EpisodesArguments, until: float) -> list[Part]:
    """Returns the arguments of `_play` for each process. Raises UsageError if there are too few cores, or if no task
    can have the operators that `only` asks for."""
    Narrow.of(asked.only, asked.level)
    if not asked.cores:
        return [(asked, until, part, (), ()) for part in range(asked.processes)]
    parts, rest = own_cores(asked.processes, asked.cores, sorted(os.sched_getaffinity(0)))
    return [(asked, until, part, cores, rest) for part, cores in enumerate(parts)]


def summarise(out: Path, target: str) -> dict[str, Any]:
    """Returns statistics over all episodes and failures of a target, as a dictionary for JSON: counts by behaviour
    (what a lesson demonstrates), kind of reply, kernel family, level and first observation; the number of characters;
    seconds by stage."""
    counts = {name: Counter[str]() for name in ("behaviours", "turns", "families", "first_observation")}
    levels, stages = Counter[int](), Counter[str]()
    keys, characters, count = set(), 0, 0
    for path in sorted(out.glob(f"episodes-{target}-*.jsonl")):
        for episode in read_lines(path, Episode):
            count += 1
            keys.add(episode.key)
            for name in ("behaviours", "turns", "families"):
                counts[name].update(getattr(episode, name))
            levels[episode.level] += 1
            characters += sum(len(message["content"]) for message in episode.messages)
            observed = next((message["content"] for message in episode.messages if message["role"] == "tool"), "")
            counts["first_observation"][observed.partition(" ")[0]] += 1
            stages.update(episode.seconds)
    counts["failures"] = Counter(
        failure.what for path in sorted(out.glob(f"failures-{target}-*.jsonl")) for failure in read_lines(path, Failure)
    )
    return {
        "episodes": count,
        "tasks": len(keys),
        "characters": characters,
        "levels": dict(sorted(levels.items())),
        **{name: dict(some.most_common()) for name, some in counts.items()},
        "stage_seconds": {stage: round(seconds, 1) for stage, seconds in stages.most_common()},
    }


def _count(asked: EpisodesArguments) -> int:
    paths = sorted(asked.out.glob(f"episodes-{asked.target}-*.jsonl"))
    return sum(1 for path in paths for _ in read_lines(path, Episode))


def _side_by_side(parts: list[Part]) -> list[int]:
    """Runs `_play` in one process for each element of `parts`. Returns the exit codes of processes that failed.

    A process that failed is started again and continues after the task at which it failed. It is not started again if
    it ran for less than `LIVED` seconds, or if less time than that remains.
    """

    def again(part: Part, lived: float) -> bool:
        return lived > LIVED and part[1] - time.monotonic() > LIVED

    return side_by_side(_play, parts, again=again)


def _play(
    asked: EpisodesArguments, until: float, part: int, cores: tuple[int, ...], builder_cores: tuple[int, ...]
) -> None:
    """Plays the lessons of the tasks that belong to process `part`, in the current process. Binds it to `cores`, if not
    empty."""
    if cores:
        os.sched_setaffinity(0, cores)
    with LessonRunner(asked, until, part, builder_cores) as player:
        player.run()
