"""Workers share a device's memory: a candidate is not blamed if others use the memory."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import msgspec
import pytest

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.records import BufferSpec, Candidate, Evaluation, Outcome, Stage, Tier
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.evaluation.tasks import of_graph
from kernel_assistant_training.evaluation.worker import PAUSE_SECONDS, TRIES, judged_with_room
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, EvaluationRequest, PoolOptions


def _found(outcome: Outcome) -> Evaluation:
    return Evaluation(candidate="c", tier=Tier.quick, outcome=outcome, stage=Stage.verify, message="")


def _judged(*outcomes: Outcome, ends: bool = False) -> tuple[Outcome, list[float]]:
    """The outcome that counts, and the pauses before it."""
    left, pauses = iter(outcomes), list[float]()

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return ends

    return judged_with_room(lambda: _found(next(left)), pause).outcome, pauses


def test_who_found_no_memory_is_judged_again_and_nobody_else() -> None:
    full, late, wrong = Outcome.out_of_memory, Outcome.hung, Outcome.incorrect
    assert _judged(late) == (late, [])
    assert _judged(wrong) == (wrong, [])
    assert _judged(full, full, wrong) == (wrong, [PAUSE_SECONDS] * 2)
    assert _judged(*[full] * TRIES) == (full, [PAUSE_SECONDS] * (TRIES - 1))
    assert _judged(full, ends=True) == (full, [PAUSE_SECONDS])


def _with_scratch(candidate: Candidate) -> Candidate:
    """The same candidate with a GiB of scratch memory: the judge's own memory was allocated when the task was
    opened.
    """
    room = BufferSpec(name="room", dtype="u8", shape=(str(1 << 30),))
    return msgspec.structs.replace(candidate, plan=msgspec.structs.replace(candidate.plan, scratch=(room,)))


def _all_memory() -> list[Any]:
    """Allocates nearly all of the GPU's memory. Processes that have just ended free theirs a moment later."""
    import torch

    held = []
    while (free := torch.cuda.mem_get_info()[0]) > 64 << 20:
        held.append(torch.empty(free - (2 << 20), dtype=torch.uint8, device="cuda"))
        time.sleep(2.0)
    return held


@pytest.mark.gpu
@pytest.mark.timed  # what others give back would be room
def test_a_full_gpu_is_waited_for(tmp_path, cache) -> None:
    import torch

    subject = next(subjects(1, "cuda"))
    task, source = of_graph(subject.graph, "cuda"), subject.answers[0].source
    first, second = (
        EvaluationRequest(task, _with_scratch(candidate_from({"kernel.cu": text}, task.graph, "cuda", task.canonical)))
        for text in (source, f"{source}\n// again\n")
    )
    with EvaluationPool(PoolOptions(target="cuda", out=tmp_path, cache=cache, python=sys.executable)) as pool:
        pool.open([task])
        held = _all_memory()
        (full,) = pool.judge([first])
        assert full is not None and full.outcome is Outcome.out_of_memory

        def give_back() -> None:
            held.clear()
            torch.cuda.empty_cache()

        threading.Timer(PAUSE_SECONDS, give_back).start()
        (found,) = pool.judge([second])
    assert found is not None and found.outcome is Outcome.correct
