"""Tensors that are read along two dimensions at once: each dimension has a loop of its own, on both targets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial
from kernel_assistant.targets import cpu
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Built, Function, Tensors, check, compile_candidate, export
from tests.generator.test_cuda import H200

pytestmark = pytest.mark.sampled(3)


def _spread(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


Case = tuple[Callable[..., Any], Tensors]

CASES: dict[str, Case] = {
    "turned": (lambda x: x + x.T, (_spread(7, 7),)),
    "turned in a batch": (lambda x: torch.relu(x - x.transpose(1, 2)), (_spread(3, 40, 40),)),
    "three ways": (lambda x: x + x.permute(1, 2, 0) * x.permute(2, 0, 1), (_spread(5, 5, 5),)),
    "a choice": (lambda x: torch.where(x > x.T, x, x.T * 2), (_spread(6, 6),)),
    "differences": (lambda x: x[:, None] - x[None], (_spread(9),)),
    "two vectors, joined before": (lambda p, q: (p + q)[:, None] * q[None], (_spread(9), _spread(9))),
    "two vectors, joined after": (lambda p, q: (p[:, None] * q[None], p + q), (_spread(50), _spread(50))),
    "distances": (lambda x: (x[:, :, None] - x[:, None]).square().sum(-1).sqrt(), (_spread(3, 7, 5),)),
    "a mask of regions": (
        lambda w: torch.where(w.unsqueeze(1) != w.unsqueeze(2), -100.0, 0.0),
        (_spread(4, 9).round(),),
    ),
    "similarities": (lambda x: F.cosine_similarity(x[:, None], x[None], -1), (_spread(6, 5),)),
    "sums of columns beside rows": (lambda x: x + x.sum(-1)[None, :], (_spread(6, 6),)),
    "softmax, turned": (lambda x: x.softmax(-1) + x.softmax(-1).T, (_spread(6, 6),)),
}


@pytest.mark.parametrize("name", CASES)
def test_right_on_the_cpu(name: str, tmp_path: Path) -> None:
    function, args = CASES[name]
    graph = export(Function(function), *args)
    check(Function(function), args, Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path))


@pytest.mark.parametrize("name", ["turned in a batch", "differences", "two vectors, joined after"])
def test_right_in_the_emulator(name: str, tmp_path: Path) -> None:
    function, args = CASES[name]
    graph = export(Function(function), *args)
    check(Function(function), args, OnHost(graph, initial(graph, "cuda", H200)[0], tmp_path))


@pytest.mark.parametrize("name", CASES)
def test_schedules_come_back(name: str) -> None:
    function, args = CASES[name]
    graph = export(Function(function), *args)
    for schedule in initial(graph, "cuda", H200):
        assert parse(emit(graph, schedule)) == (graph, schedule)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_compiles(tmp_path: Path) -> None:
    function, args = CASES["distances"]
    graph = export(Function(function), *args)
    compile_candidate(emit(graph, initial(graph, "cuda", H200)[0]), tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_right_on_the_gpu(name: str, tmp_path: Path) -> None:
    function, args = CASES[name]
    graph = export(Function(function), *args)
    check(Function(function), args, Built(graph, initial(graph, "cuda", H200)[0], tmp_path))
