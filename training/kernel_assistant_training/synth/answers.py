"""Makes correct answers for a task without running anything: the generator's source for several schedules."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kernel_assistant.generator.emit import emit, text_of
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.drawn import drawn
from kernel_assistant.generator.search.search import first_guess
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.targets.base import DeviceFacts

#: Schedules are chosen for devices of this kind; none is used.
DEVICES = {
    "cpu": DeviceFacts(target="cpu", name="CPU", arch="x86-64-avx2", cores=4, threads=4, cache_bytes=32 << 20),
    "cuda": DeviceFacts(
        target="cuda", name="H200", arch="sm_90", cores=132, cache_bytes=50 << 20, shared_bytes_per_block=227 << 10
    ),
}


@dataclass(frozen=True)
class Answer:
    """A correct answer that the generator wrote for one `schedule`. `source` is the text inside the code fence: parts
    (the operators of each kernel), schedule, plan and kernels (`plan_text.py`). `residual` names the graph nodes that
    stay PyTorch's calls."""

    schedule: Schedule
    source: str
    residual: tuple[str, ...]


def answers(task: Canonical, target: str, random: Random, count: int) -> list[Answer]:
    """Returns at most `count` different correct answers: the generator's first guess, then answers for schedules drawn
    at random; [] if the generator cannot write the task. Takes about 20 ms, and 2 ms for each answer."""
    graph = named_graph(task)
    try:
        first = first_guess(graph, target, DEVICES[target])
        candidates = {first: emit(graph, first)}
        if count > 1:
            candidates |= drawn(graph, target, DEVICES[target], random, count - 1)
    except Unsupported:
        return []
    return [Answer(schedule, text_of(candidate), candidate.plan.residual) for schedule, candidate in candidates.items()]
