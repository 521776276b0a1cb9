"""The generator's first guess beside the fastest labelled candidate, without a GPU: whoever changes the rules that
order schedules sees at once what that costs on an H200.

    python -m bench.first_guess [training/data/labels]
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean

from kernel_assistant.generator.search.search import first_guess
from kernel_assistant.records.evaluation import ranked_ms
from kernel_assistant_training.synth.answers import DEVICES
from kernel_assistant_training.tasks.shards import graph_of, read_rows

LABELS = Path(__file__).parents[1] / "training/data/labels"
#: Shorter calls are launches above all.
LONG_MS = 0.01


def ratios(folder: Path) -> dict[str, list[tuple[float, float] | None]]:
    """For each kind of tasks with a correct time: the first guess's time over the fastest candidate's, and the first
    guess's milliseconds; None if this schedule has no time."""
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for row in read_rows(folder, "labels"):
        if row["outcome"] == "correct" and row["target"] == "cuda" and row["candidate_ms"]:
            times[row["task"]][row["schedule"]] = ranked_ms(row["candidate_ms"], row["graph_ms"])
    by_kind: dict[str, list[tuple[float, float] | None]] = defaultdict(list)
    for task in read_rows(folder):
        timed = times.get(task["key"], {})
        if len(timed) > 1:
            own = timed.get(first_guess(graph_of(task), "cuda", DEVICES["cuda"]).text())
            by_kind[task["source"]].append((own / min(timed.values()), own) if own else None)
    return by_kind


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean; NaN if there is no ratio."""
    every = list(ratios)
    return geometric_mean(every) if every else math.nan


def table(by_kind: dict[str, list[tuple[float, float] | None]]) -> str:
    every = {**by_kind, "all": [one for some in by_kind.values() for one in some]}
    lines = ["| kind | tasks | first guess not timed | first / fastest | from 10 µs on |", "|---|---:|---:|---:|---:|"]
    for kind, some in every.items():
        timed = [one for one in some if one]
        whole, long = mean(ratio for ratio, _ in timed), mean(ratio for ratio, ms in timed if ms >= LONG_MS)
        lines.append(f"| {kind} | {len(some)} | {len(some) - len(timed)} | {whole:.3f} | {long:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(ratios(Path(sys.argv[1]) if len(sys.argv) > 1 else LABELS)))
