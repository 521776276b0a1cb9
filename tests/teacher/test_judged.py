"""Answers before the real judge: several inputs and held-out sizes, compared with PyTorch, on the CPU and on a GPU if
there is one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.environment.session import open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Evaluation, KernelTask, Numerics, Outcome, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.source.build import build_task
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.teacher import answers
from tests.common.caches import new_cache
from tests.teacher.units import UNITS

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\nclass Model(nn.Module):\n"
WEIGHTS = (
    "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.rand({0}) + 0.5)\n\n"
)
RESIDUAL = (
    HEAD
    + WEIGHTS.format("131")
    + """    def forward(self, x, y):
        h = F.gelu(x) + y
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w

def get_inputs():
    return [torch.randn(9, 131), torch.randn(9, 131)]
"""
)
CHANNELS = (
    HEAD
    + WEIGHTS.format("6, 1, 1")
    + """    def forward(self, x):
        return F.silu(x * self.w) - 0.25, (x > 0).any(-1)

def get_inputs():
    return [torch.randn(5, 6, 7, 9)]
"""
)
LOSS = (
    HEAD
    + """    def forward(self, x, y):
        return F.cross_entropy(x * 0.5, y, label_smoothing=0.1)

def get_inputs():
    return [torch.randn(37, 100), torch.randint(0, 100, (37,))]
"""
)
POOLED = (
    HEAD
    + """    def forward(self, x, y):
        return F.max_pool2d(F.silu(x), 3, 2, 1) * y

def get_inputs():
    return [torch.randn(5, 6, 17, 19), torch.rand(6, 1, 1)]
"""
)
BACKWARDS = (
    HEAD
    + """    def forward(self, x):
        return torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1]) * 0.25

def get_inputs():
    return [torch.randn(9, 131)]
"""
)
ROTARY = (
    HEAD
    + """    def forward(self, x, y):
        half = x.shape[-1] // 2
        return x * y + torch.cat([-x[..., half:], x[..., :half]], -1)

def get_inputs():
    return [torch.randn(5, 4, 7, 36), torch.randn(7, 36)]
"""
)
COLUMNS = (
    HEAD
    + """    def forward(self, x):
        return torch.sqrt(F.relu(x).mean(1)), x.transpose(1, 2).contiguous()

def get_inputs():
    return [torch.randn(5, 60, 70)]
"""
)
ORDER = (
    HEAD
    + """    def forward(self, x, y):
        h = x * 0.3 + y
        value, place = h.max(-1)
        return value, place, h.argmin(-1), torch.where(h > h.mean(-1, keepdim=True), x, y)

def get_inputs():
    return [torch.randn(61, 1031), torch.randn(61, 1031)]
"""
)
TRIANGLES = (
    HEAD
    + """    def forward(self, x):
        return F.max_pool2d(torch.triu(x), 3, 1, 1), torch.tril(x, 1).sum(1)

def get_inputs():
    return [torch.randn(5, 4, 17, 19)]
"""
)
MODULES = {"residual": RESIDUAL, "channels": CHANNELS, "loss": LOSS}
MODULES |= {"pooled": POOLED, "backwards": BACKWARDS, "rotary": ROTARY, "columns": COLUMNS}
MODULES |= {"order": ORDER, "triangles": TRIANGLES}
#: (module, dtype).
CASES = [("residual", "float32"), ("residual", "bfloat16"), ("channels", "float16"), ("loss", "float32")]
CASES += [("pooled", "float32"), ("backwards", "bfloat16"), ("rotary", "float32"), ("columns", "float32")]
CASES += [("order", "bfloat16"), ("order", "float16"), ("triangles", "float32")]


def _task(name: str, dtype: str, target: str) -> KernelTask:
    text = MODULES[name]
    for made in ("randn(9, 131", "randn(61, 1031", "randn(5, 6, 7, 9", "rand(131", "rand(6, 1, 1"):
        text = text.replace(made, f"{made}, dtype=torch.{dtype}")
    return build_task(f"/nowhere/{name}.py", target=target, numerics=Numerics.kernelbench, text=text)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerClient]:
    started = WorkerClient(sys.executable, log=tmp_path_factory.mktemp("log") / "worker.log")
    yield started
    started.close()


def _judged(task: KernelTask, worker: WorkerClient, cache: Path) -> list[Evaluation]:
    how = {"worker": worker, "sandbox_mode": "auto", "cache_dir": new_cache(cache), "cancel": threading.Event()}
    with open_environment(task, device=detect(task.target), emit=lambda event: None, **how) as environment:  # type: ignore[arg-type]
        named = canonical(environment.graph)
        found = answers(named, task.target, Random(0), 2)
        assert found
        files = [{UNITS[task.target]: answer.source} for answer in found]
        candidates = [candidate_from(one, environment.graph, task.target, named) for one in files]
        return list(environment.iterate(candidates, Tier.quick))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_answers_for_the_cpu_pass(name: str, dtype: str, worker: WorkerClient, tmp_path: Path) -> None:
    for one in _judged(_task(name, dtype, "cpu"), worker, tmp_path):
        assert one.outcome is Outcome.correct, one.message


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_answers_for_cuda_pass(name: str, dtype: str, worker: WorkerClient, tmp_path: Path) -> None:
    for one in _judged(_task(name, dtype, "cuda"), worker, tmp_path):
        assert one.outcome is Outcome.correct, one.message
