"""Several players side by side, and what they came to."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant_training.episodes.lines import Episode, Failure, read_lines
from kernel_assistant_training.episodes.options import Options
from kernel_assistant_training.episodes.player import Player
from kernel_assistant_training.interrupts import Interrupted, belong_to_parent

#: Seconds of a process that it takes to begin another in its place, and that must be left.
LIVED = 30.0


def run(options: Options, cores: int = 0) -> dict[str, Any]:
    """Play with `options.parts` processes until the time is over; the summary, which is also written to the folder.

    With `cores`, each process measures on so many of this process's cores, which nobody else uses, and all build on the
    rest. A process that fails is named by its exit code, and another one goes on in its place.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    before = _count(options)
    began = time.monotonic()
    if cores:
        # The bandwidth is measured while the machine is quiet: before the first lesson of anybody.
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
    # Of this run: workers, runners and compilers are children, and their own children count with them.
    used = [getrusage(whose) for whose in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    summary["cpu_seconds_per_episode"] = round(sum(one.ru_utime + one.ru_stime for one in used) / max(played, 1), 2)
    (options.out / f"summary-{options.target}.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    return summary


def shares(options: Options, cores: int) -> list[tuple[Options, tuple[int, ...]]]:
    """The options of each process, with the cores that it measures on. Raises UsageError where there are too few."""
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
    """Of all lines of a target: how many, of which behaviours, families, levels and endings; characters; stages."""
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


def _count(options: Options) -> int:
    paths = sorted(options.out.glob(f"episodes-{options.target}-*.jsonl"))
    return sum(1 for path in paths for _ in read_lines(path, Episode))


def _side_by_side(parts: list[tuple[Options, tuple[int, ...]]]) -> list[int]:
    """A process for each, on its cores where it has any; exit codes of those that failed.

    Another one goes on in its place, with the task behind the last: one task is lost. Not where it failed at once.
    """
    context, failed = get_context("spawn"), list[int]()

    def begin(part: tuple[Options, tuple[int, ...]]) -> tuple[SpawnProcess, float]:
        process = context.Process(target=_part, args=part)
        process.start()
        return process, time.monotonic()

    running = {part[0].part: (*begin(part), part) for part in parts}
    try:
        while running:
            wait([process.sentinel for process, _, _ in running.values()])
            for name, (process, began, part) in list(running.items()):
                if process.is_alive():
                    continue
                process.join()
                del running[name]
                if process.exitcode:
                    failed.append(process.exitcode)
                    now = time.monotonic()
                    if now - began > LIVED and part[0].until - now > LIVED:
                        running[name] = (*begin(part), part)
    finally:
        for process, _, _ in running.values():
            process.terminate()
    return failed


def _part(options: Options, cores: tuple[int, ...]) -> None:
    """A process of its own, which leaves nothing behind when it is ended."""
    belong_to_parent()
    try:
        _play(options, cores)
    except Interrupted as error:
        raise SystemExit(error.exit_code) from error


def _play(options: Options, cores: tuple[int, ...] = ()) -> None:
    """In a process of its own, or in this one."""
    if cores:
        os.sched_setaffinity(0, cores)
    player = Player(options)
    try:
        player.run()
    finally:
        player.close()
