"""Tests how the workers of one machine share its threads, and the memory of a GPU."""

from __future__ import annotations

import os

import pytest

from kernel_assistant.environment.measuring import GPU_SHARE
from kernel_assistant.worker.process.gpu_share import share_of
from kernel_assistant_training.evaluation.options import ALONE, BESIDE_TRAINER, part_of_gpu, share_of_gpu


def test_who_is_alone_has_all() -> None:
    assert part_of_gpu(1) == {}
    # One a GPU: they share the cores.
    assert part_of_gpu(4, 4).keys() == {"OMP_NUM_THREADS", "OMP_PROC_BIND", "TORCHINDUCTOR_COMPILE_THREADS"}


@pytest.mark.parametrize(("parts", "gpus", "most"), [(10, 1, 10), (10, 4, 3), (2, 1, 2), (9, 8, 2)])
def test_workers_of_a_gpu_take_no_more_together_than_they_may(parts: int, gpus: int, most: int) -> None:
    for together in (ALONE, BESIDE_TRAINER):
        found = part_of_gpu(parts, gpus, together)
        assert found["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // parts))
        share = share_of(found[GPU_SHARE])
        assert share == share_of_gpu(parts, gpus, together)
        assert 0.98 * together < share * most < 1.001 * together


def test_a_trainer_beside_one_worker_keeps_its_part() -> None:
    assert part_of_gpu(1, 1, BESIDE_TRAINER) == {GPU_SHARE: str(BESIDE_TRAINER)}
