"""Tests how likely answers are generated with our decoding loop, and how cores are shared."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

from bench.held_out_judge import JudgeOptions
from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.folder import save_folder
from kernel_assistant_training.greedy import greedy, likeliest

PROMPTS = [
    (Message(role="system", content="cuda"), Message(role="user", content=f"x0 f32[B,{size}]\nn0 = relu(x0)"))
    for size in (3, 64)
]


@pytest.mark.slow
def test_each_prompt_gets_different_answers_the_greedy_one_first(tmp_path):
    torch.manual_seed(0)
    save_folder(Llama(replace(SMALL, layers=1, width=64, inner=64)), tmp_path)
    cpu = torch.device("cpu")
    every, rate = likeliest(tmp_path, PROMPTS, 4, device=cpu, most=12)
    for answers, first in zip(every, greedy(tmp_path, PROMPTS, cpu, most=12), strict=True):
        assert answers[0] == (first, 12)
        assert len({text for text, _ in answers}) == 4
        assert all(1 <= tokens <= 12 for _, tokens in answers)
    assert rate > 0


def test_processes_measure_on_cores_of_their_own_and_build_on_the_rest(tmp_path):
    alone = JudgeOptions(WorkerOptions("cpu", sys.executable, tmp_path, tmp_path), until=0.0)
    found = alone.parts(3, 4, tuple(range(16)))
    assert [one.cores for one in found] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]
    workers = [one.workers for one in found]
    assert {one.builder_cores for one in workers} == {(12, 13, 14, 15)} and {one.builders for one in workers} == {1}
    assert [(one.first, one.total) for one in workers] == [(0, 3), (1, 3), (2, 3)]
    (all_cores,) = alone.parts(1, 4, (0, 1))
    assert (all_cores.cores, all_cores.workers.builder_cores, all_cores.workers.builders) == ((), (), 2)
    with pytest.raises(UsageError, match="3 processes of 6 cores"):
        alone.parts(3, 6, tuple(range(16)))
