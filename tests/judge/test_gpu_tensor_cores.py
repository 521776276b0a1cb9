"""On a GPU: convolutions of few channels, which PyTorch computes exactly and torch.compile on tensor cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Evaluation, Numerics, Outcome, Tier
from kernel_assistant.source.build import build_task
from tests.judge import kernels

pytestmark = pytest.mark.gpu
TEXT = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 32, 3, groups={groups})

    def forward(self, x):
        return torch.nn.functional.leaky_relu(self.conv(x) / 2)


def get_inputs():
    return [torch.rand(32, 8, 96, 96)]


def get_init_inputs():
    return []
"""


PRODUCT = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y


def get_inputs():
    return [torch.rand(1024, 4096), torch.rand(4096, 1024)]


def get_init_inputs():
    return []
"""


def _judged(
    worker: WorkerClient, cache: Path, path: Path, text: str, numerics: Numerics = Numerics.kernelbench
) -> list[Evaluation]:
    """The generator's first candidate in both tiers."""
    path.write_text(text)
    task = build_task(str(path), target="cuda", numerics=numerics, text=text)
    with kernels.environment(worker, cache, task, nominal=False) as environment:
        tf32 = numerics is Numerics.paper
        candidate = emit(environment.graph, initial(environment.graph, "cuda", environment.device, tf32)[0])
        quick = environment.evaluate([candidate], Tier.quick)
        environment.baseline(compiled=True)
        return [*quick, *environment.evaluate([candidate], Tier.full)]


@pytest.mark.parametrize(("groups", "least", "most"), [(1, 1e-5, 1e-2), (2, 0, 1e-5)])
def test_a_candidate_uses_tensor_cores_where_torch_compile_does(
    worker: WorkerClient, cache: Path, tmp_path: Path, groups: int, least: float, most: float
) -> None:
    for judged in _judged(worker, cache, tmp_path / "model.py", TEXT.format(groups=groups)):
        assert judged.outcome is Outcome.correct, judged.message
        assert judged.accuracy is not None
        assert least <= judged.accuracy.relative_error <= most
        assert judged.accuracy.error_ratio <= 2


def test_numerics_paper_allow_what_pytorch_gives_with_tf32(worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    """Sums of 4,096 products of normal numbers are off by more than 1e-2, in PyTorch as in the candidate."""
    for judged in _judged(worker, cache, tmp_path / "model.py", PRODUCT, Numerics.paper):
        assert judged.outcome is Outcome.correct, judged.message
        assert judged.accuracy is not None
        assert judged.accuracy.relative_error >= 1e-5
