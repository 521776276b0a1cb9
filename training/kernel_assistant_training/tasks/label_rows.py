"""Rows of labels (results of the generator's candidates for tasks), as JSON lines: each has the result of one
candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.generator.emit import SOURCE
from kernel_assistant.records import Candidate, Evaluation
from kernel_assistant.records.codec import Record
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.episodes.lines import read_lines

#: Names of an evaluation's seconds → names in a row.
_SPENT = {"compile": "build", "verify": "verify", "profile": "profile"}


class Label(Record, frozen=True, kw_only=True):
    """A candidate of a task and its result. `outcome` is the outcome of the evaluation, or one of: `lost` (the judge
    was lost), `unsupported` (the generator has no candidate for the task), `unopened` (the task cannot be opened),
    `failed` (an unexpected error of the generator or the judge, see `message`). A task with a row without a candidate
    is not tried again.

    `candidate_ms` is the median over `samples` blocks (several timed calls in a row), whose relative spread is `noise`;
    `graph_ms` is the time in a CUDA graph; `floor_ms` is the roofline. `again_ms` and `again_graph_ms` are the same
    times from a second evaluation, which the task's first candidate and its fastest one get, because the smallest of
    many times is too small by its noise. Memory is in bytes; registers and static shared memory are the maximum over
    the kernels; `launches` has grid, block and dynamic shared memory, as JSON.

    `*_seconds` are the seconds that the judge waited for the build, and for verifying and profiling on the device.
    `open_seconds`, for opening the task and timing eager PyTorch, is set for the task's first candidate only.
    """

    task: str
    number: int
    target: str
    device: str
    outcome: str
    message: str = ""
    candidate: str = ""
    schedule: str = ""
    source: str = ""
    stage: str = ""
    launches: str = ""
    candidate_ms: float | None = None
    graph_ms: float | None = None
    again_ms: float | None = None
    again_graph_ms: float | None = None
    noise: float | None = None
    samples: int | None = None
    eager_ms: float | None = None
    floor_ms: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    seconds: float | None = None
    open_seconds: float | None = None
    build_seconds: float | None = None
    verify_seconds: float | None = None
    profile_seconds: float | None = None

    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class LabelKey(msgspec.Struct, frozen=True):
    """The fields of a row that identify it: the task's key, and the candidate's hash, "" in a row without a
    candidate."""

    task: str
    candidate: str = ""


def read_labels(folder: Path) -> Iterator[Label]:
    for path in sorted(folder.glob("labels-*.jsonl")):
        yield from read_lines(path, Label)


def rows_of(folder: Path) -> tuple[Counter[str], set[str]]:
    """Returns task's key → number of its candidates that have a row, and the keys of tasks that have a row without a
    candidate. Reads the rows of all processes, because another number of processes distributes the tasks differently.
    """
    done, without = Counter[str](), set[str]()
    for path in sorted(folder.glob("labels-*.jsonl")):
        for one in read_lines(path, LabelKey):
            if one.candidate:
                done[one.task] += 1
            else:
                without.add(one.task)
    return done, without


def label_of(
    key: str,
    number: int,
    candidate: Candidate,
    evaluation: Evaluation | None,
    device: DeviceFacts,
    opened: float | None,
    again: Evaluation | None = None,
) -> Label:
    """Returns the row of a task's candidate. `evaluation` is None if the judge was lost; `opened` are the seconds of
    opening the task, if this is its first row; `again` is the second evaluation, if there was one."""
    timing = evaluation.timing if evaluation else None
    second = again.timing if again else None
    resources = evaluation.resources if evaluation else ()
    plan = candidate.plan
    spent = {_SPENT[name]: taken for name, taken in evaluation.seconds.items()} if evaluation else {}
    launches = [[one.symbol, one.grid, one.block, one.shared] for one in plan.launches]
    return Label(
        task=key,
        number=number,
        target=plan.target,
        device=device.arch,
        outcome=evaluation.outcome.value if evaluation else "lost",
        message=evaluation.message if evaluation else "",
        candidate=candidate.hash(),
        schedule=plan.schedule,
        source=candidate.sources[SOURCE[plan.target]],
        stage=evaluation.stage.value if evaluation else "",
        launches=msgspec.json.encode(launches).decode(),
        candidate_ms=timing.candidate_ms if timing else None,
        graph_ms=timing.graph_ms if timing else None,
        again_ms=second.candidate_ms if second else None,
        again_graph_ms=second.graph_ms if second else None,
        noise=timing.noise if timing else None,
        samples=timing.samples if timing else None,
        eager_ms=timing.eager_ms if timing else None,
        floor_ms=timing.floor_ms if timing else None,
        registers=max((one.registers for one in resources), default=None),
        shared_bytes=max((one.shared_bytes for one in resources), default=None),
        spill_bytes=max((one.spill_bytes for one in resources), default=None),
        seconds=round(sum(evaluation.seconds.values()), 4) if evaluation else None,
        open_seconds=opened,
        **{f"{name}_seconds": round(taken, 4) for name, taken in spent.items()},
    )
