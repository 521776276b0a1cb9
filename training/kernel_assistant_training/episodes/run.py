"""Runs several players side by side and summarises their results."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant_training.episodes.lines import Episode, Failure, read_lines
from kernel_assistant_training.episodes.options import EpisodeOptions
from kernel_assistant_training.episodes.player import LessonRunner
from kernel_assistant_training.evaluation.processes import side_by_side

#: A failed process is replaced if it ran longer than this, and this many seconds are left.
LIVED = 30.0


def run(options: EpisodeOptions, cores: int = 0) -> dict[str, Any]:
    """Play with `options.parts` processes until the time is up. Returns the summary, which is also written to the
    folder.

    With `cores`, each process measures on `cores` cores of its own, and all processes compile on the remaining cores.
    The summary lists the exit codes of processes that failed; each is replaced by a new one.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    before = _count(options)
    began = time.monotonic()
    if cores:
        # Measure the bandwidth while the machine is quiet, before any lesson begins.
        parts = shares(options, cores)
        failed = _side_by_side([(replace(parts[0][0], until=began), parts[0][1])]) or _side_by_side(parts)
    elif options.parts == 1:
        _play(options)
        failed = []
    else:
        failed = _side_by_side([(replace(options, part=part), ()) for part in range(options.parts)])
    seconds = time.monotonic() - began
    summary = {**summarise(options.out, options.target), "seconds": round(seconds, 1), "failed_processes": failed}
    played = _count(options) - before
    summary["episodes_per_second"] = round(played / seconds, 3)
    # The time of children covers workers, runners, compilers and their own children.
    used = [getrusage(whose) for whose in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    summary["cpu_seconds_per_episode"] = round(sum(one.ru_utime + one.ru_stime for one in used) / max(played, 1), 2)
    (options.out / f"summary-{options.target}.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    return summary


def shares(options: EpisodeOptions, cores: int) -> list[tuple[EpisodeOptions, tuple[int, ...]]]:
    """The options of each process, and the cores that it measures on. Raises UsageError if there are too few cores."""
    all_cores = tuple(sorted(os.sched_getaffinity(0)))
    rest = all_cores[options.parts * cores :]
    if not rest:
        cause = f"{options.parts} processes of {cores} cores and a builder need more than {len(all_cores)} cores"
        raise UsageError(cause, "use fewer --processes or --cores")
    return [
        (
            replace(options, part=part, own_device=True, builder_cores=rest),
            all_cores[part * cores : (part + 1) * cores],
        )
        for part in range(options.parts)
    ]


def summarise(out: Path, target: str) -> dict[str, Any]:
    """Statistics over all lines of a target: counts by behaviour, family, level and first observation; characters;
    seconds by stage."""
    behaviours: Counter[str] = Counter()
    families: Counter[str] = Counter()
    levels: Counter[int] = Counter()
    first: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    turns: Counter[str] = Counter()
    keys, characters, count = set(), 0, 0
    for path in sorted(out.glob(f"episodes-{target}-*.jsonl")):
        for episode in read_lines(path, Episode):
            count += 1
            keys.add(episode.key)
            behaviours.update(episode.behaviours)
            families.update(episode.families)
            levels[episode.level] += 1
            turns.update(episode.turns)
            characters += sum(len(message["content"]) for message in episode.messages)
            observed = next((message["content"] for message in episode.messages if message["role"] == "tool"), "")
            first[observed.partition(" ")[0]] += 1
            stages.update(episode.seconds)
    failures = Counter(
        failure.what for path in sorted(out.glob(f"failures-{target}-*.jsonl")) for failure in read_lines(path, Failure)
    )
    return {
        "episodes": count,
        "tasks": len(keys),
        "characters": characters,
        "behaviours": dict(behaviours.most_common()),
        "turns": dict(turns.most_common()),
        "families": dict(families.most_common()),
        "levels": dict(sorted(levels.items())),
        "first_observation": dict(first.most_common()),
        "failures": dict(failures.most_common()),
        "stage_seconds": {stage: round(seconds, 1) for stage, seconds in stages.most_common()},
    }


def _count(options: EpisodeOptions) -> int:
    paths = sorted(options.out.glob(f"episodes-{options.target}-*.jsonl"))
    return sum(1 for path in paths for _ in read_lines(path, Episode))


def _side_by_side(parts: list[tuple[EpisodeOptions, tuple[int, ...]]]) -> list[int]:
    """Run a process for each part, on its cores if it has any. Returns the exit codes of those that failed.

    A failed process is replaced and continues after its last task, which is lost. A process that failed within `LIVED`
    seconds is not replaced.
    """
    return side_by_side(
        _play,
        parts,
        again=lambda part, lived: lived > LIVED and part[0].until - time.monotonic() > LIVED,
    )


def _play(options: EpisodeOptions, cores: tuple[int, ...] = ()) -> None:
    """Play in the current process, on `cores` if there are any."""
    if cores:
        os.sched_setaffinity(0, cores)
    player = LessonRunner(options)
    try:
        player.run()
    finally:
        player.close()
