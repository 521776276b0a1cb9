"""Tensors that are read along two dimensions at once: each dimension has a loop of its own, on both targets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.generator.search.search import initial
from tests.generator.checks import check, check_compiles, check_on_cpu, check_on_gpu, check_read_back
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, export, graph_of, spread
from tests.generator.modules import Case, case

pytestmark = pytest.mark.sampled(3)


CASES: dict[str, Case] = {
    "turned": case(lambda x: x + x.T, spread(7, 7)),
    "turned in a batch": case(lambda x: torch.relu(x - x.transpose(1, 2)), spread(3, 40, 40)),
    "three ways": case(lambda x: x + x.permute(1, 2, 0) * x.permute(2, 0, 1), spread(5, 5, 5)),
    "a choice": case(lambda x: torch.where(x > x.T, x, x.T * 2), spread(6, 6)),
    "differences": case(lambda x: x[:, None] - x[None], spread(9)),
    "two vectors, joined before": case(lambda p, q: (p + q)[:, None] * q[None], spread(9), spread(9)),
    "two vectors, joined after": case(lambda p, q: (p[:, None] * q[None], p + q), spread(50), spread(50)),
    "distances": case(lambda x: (x[:, :, None] - x[:, None]).square().sum(-1).sqrt(), spread(3, 7, 5)),
    "a mask of regions": case(
        lambda w: torch.where(w.unsqueeze(1) != w.unsqueeze(2), -100.0, 0.0), spread(4, 9).round()
    ),
    "similarities": case(lambda x: F.cosine_similarity(x[:, None], x[None], -1), spread(6, 5)),
    "sums of columns beside rows": case(lambda x: x + x.sum(-1)[None, :], spread(6, 6)),
    "softmax, turned": case(lambda x: x.softmax(-1) + x.softmax(-1).T, spread(6, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_right_on_the_cpu(name: str, tmp_path: Path) -> None:
    check_on_cpu(*CASES[name], tmp_path)


@pytest.mark.parametrize("name", ["turned in a batch", "differences", "two vectors, joined after"])
def test_right_in_the_emulator(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    graph = export(model, *args)
    check(model, args, OnHost(graph, initial(graph, "cuda", H200)[0], tmp_path))


@pytest.mark.parametrize("name", CASES)
def test_schedules_come_back(name: str) -> None:
    graph = graph_of(CASES[name])
    check_read_back(graph, initial(graph, "cuda", H200))


@pytest.mark.slow
def test_cuda_compiles(tmp_path: Path) -> None:
    graph = graph_of(CASES["distances"])
    check_compiles(graph, initial(graph, "cuda", H200)[0], tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_right_on_the_gpu(name: str, tmp_path: Path) -> None:
    check_on_gpu(*CASES[name], tmp_path, 1)
