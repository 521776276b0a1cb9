"""Does the judge say the same twice? `python -m bench.repeat --target cuda --judges 12 OUT`: docs/timing.md.

Judges the same candidates of the same synthetic tasks twice, in fresh processes, and compares the times within each
task. Writes the rows to OUT/a and OUT/b, and the table to OUT/repeat.json.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.machine import describe
from kernel_assistant.records.evaluation import ranked_ms
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.tasks.label_rows import Label, read_labels

#: Candidates that a task needs to be compared.
FEWEST = 5
#: Upper ends in milliseconds of the best candidate's time, and their names.
BUCKETS = ((0.008, "< 8 µs"), (0.030, "8–30 µs"), (math.inf, "≥ 30 µs"))
FAR = 0.1


@dataclass(frozen=True)
class Repeated:
    """What two measurements of a task's candidates say. `noise`: standard deviation of one log time; `regret`: the
    time of A's best over that of B's best, both in B; `slower`: times in B over times in A; `far`: share of candidates
    that differ by more than a tenth; `reported`: the judge's own noise over the noise found."""

    best_ms: float
    noise: float
    correlation: float
    regret: float
    slower: float
    far: float
    reported: float


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--judges", default=1, help="processes that judge beside each other")
@click.option("--tasks", default=20, help="tasks, the same for each seed")
@click.option("--candidates", default=16, help="candidates of each")
@click.option("--seed", default=37)
@click.option("--seconds", default=240.0, help="limit for each of the two measurements")
def main(out: Path, target: str, judges: int, tasks: int, candidates: int, seed: int, seconds: float) -> None:
    """Measures twice and prints the table."""
    made = out / "tasks"
    if not made.exists():
        # Not all tasks are of the training split, which alone is judged.
        _train("synth", "--out", made, "--target", target, "--count", 2 * tasks, "--workers", judges, "--seed", seed)
    for name in ("a", "b"):
        words = ("--candidates", candidates, "--tasks-most", tasks, "--processes", judges, "--seconds", seconds)
        _train("label", "--out", out / name, "--tasks", made, "--target", target, *words)
    found = table(compared(times(out / "a"), times(out / "b")))
    how = {"target": target, "judges": judges, "tasks": tasks, "seed": seed}
    document = {"machine": describe(detect(target)), **how, "rows": found}
    (out / "repeat.json").write_text(json.dumps(document, indent=2, ensure_ascii=False))
    click.echo(words_of(found))


def _train(stage: str, *words: object) -> None:
    subprocess.run((sys.executable, "-m", "kernel_assistant_training", stage, *map(str, words)), check=True)


def times(folder: Path) -> dict[str, dict[str, Label]]:
    """The correct candidates by task and hash."""
    found: dict[str, dict[str, Label]] = defaultdict(dict)
    for row in read_labels(folder / "labels"):
        if row.outcome == "correct" and row.candidate_ms:
            found[row.task][row.candidate] = row
    return found


def compared(a: dict[str, dict[str, Label]], b: dict[str, dict[str, Label]]) -> Iterator[Repeated]:
    """One entry for each task with enough candidates in both."""
    for task in sorted(a.keys() & b.keys()):
        both = sorted(a[task].keys() & b[task].keys())
        if len(both) < FEWEST:
            continue
        first, second = ([_log(rows[task][key]) for key in both] for rows in (a, b))
        off = [y - x for x, y in zip(first, second, strict=True)]
        noise = statistics.pstdev(off) / math.sqrt(2)
        said = statistics.median(rows[task][key].noise or 0.0 for rows in (a, b) for key in both)
        yield Repeated(
            best_ms=math.exp(min(first)),
            noise=noise,
            correlation=statistics.correlation(first, second) if len(set(first)) > 1 < len(set(second)) else 0.0,
            regret=math.exp(second[first.index(min(first))] - min(second)),
            slower=math.exp(statistics.mean(off)),
            far=sum(abs(one) > FAR for one in off) / len(off),
            reported=said / noise if noise else math.inf,
        )


def _log(row: Label) -> float:
    """The logarithm of the time by which the search ranks a candidate."""
    assert row.candidate_ms is not None
    return math.log(ranked_ms(row.candidate_ms, row.graph_ms))


def table(found: Iterator[Repeated]) -> list[dict[str, Any]]:
    """A row for each bucket of times: medians over its tasks, and means of regret, slower and far."""
    groups: dict[str, list[Repeated]] = {name: [] for _, name in BUCKETS}
    for one in found:
        groups[next(name for most, name in BUCKETS if one.best_ms < most)].append(one)
    rows = []
    for name, group in groups.items():
        if not group:
            continue
        middle = {
            of: statistics.median(getattr(one, of) for one in group) for of in ("noise", "correlation", "reported")
        }
        mean = {of: statistics.fmean(getattr(one, of) for one in group) for of in ("regret", "slower", "far")}
        off = sum(one.far > 0 for one in group)
        rows.append({"time": name, "tasks": len(group), **middle, **mean, "off": off})
    return rows


def words_of(rows: list[dict[str, Any]]) -> str:
    """The table as text."""
    head = "time      tasks  noise  said/found  correlation  regret  B / A  off by > 10%  tasks with one"
    lines = [
        f"{row['time']:9} {row['tasks']:5}  {row['noise']:.3f}  {row['reported']:10.2f}  {row['correlation']:11.2f}"
        f"  {row['regret']:6.3f}  {row['slower']:5.2f}  {row['far']:12.2f}  {row['off']:14}"
        for row in rows
    ]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    main()
