"""The module that hostile plans attack: a softmax over wide rows, whose outputs are small everywhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import BufferSpec, Candidate, InputSource, KernelTask, Launch, Numerics, Plan, Workload
from kernel_assistant.targets.base import DeviceFacts

MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(COLUMNS) + 0.5)

    def forward(self, x):
        return torch.softmax(x * self.w, -1)

def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""


def softmax_text(rows: int, columns: int) -> str:
    """The module for inputs of rows × columns."""
    return MODULE.replace("ROWS", str(rows)).replace("COLUMNS", str(columns))


@contextmanager
def opened(
    rows: int,
    columns: int,
    folder: Path,
    worker: WorkerClient,
    device: DeviceFacts,
    cache_dir: Path,
    nominal: bool = True,
) -> Iterator[Environment]:
    """An environment for inputs of rows × columns."""
    text = softmax_text(rows, columns)
    with opened_text(text, folder, worker, device, cache_dir, nominal=nominal) as environment:
        yield environment


@contextmanager
def opened_text(
    text: str,
    folder: Path,
    worker: WorkerClient,
    device: DeviceFacts,
    cache_dir: Path,
    numerics: str = "kernelbench",
    nominal: bool = True,
) -> Iterator[Environment]:
    """An environment for the class `Model` of a text. Without `nominal` verdicts rest on the judge's clock."""
    path = folder / "model.py"
    path.write_text(text)
    task = KernelTask(
        path=str(path),
        content=text,
        class_name="Model",
        source=InputSource.get_inputs,
        workloads=(Workload(),),
        target=device.target,
        numerics=Numerics(numerics),
    )
    with open_environment(
        task,
        device=device,
        worker=worker,
        sandbox_mode="auto",
        cache_dir=cache_dir,
        cancel=threading.Event(),
        emit=lambda event: None,
        nominal=nominal,
    ) as environment:
        yield environment


def softmax_candidate(environment: Environment, text: str) -> Candidate:
    """A plan that launches `softmax` of the source text once."""
    weight = next(value for value in environment.graph.inputs if value.kind == "param")
    shape = environment.graph.spec("x0").shape
    args = (("x", "x0"), ("w", weight.name), ("out", "out"), ("rows", shape[0]), ("n", shape[1]))
    plan = Plan(
        target="cpu",
        dims=tuple(environment.graph.dims),
        inputs=(
            BufferSpec(name="x0", dtype="f32", shape=shape),
            BufferSpec(name=weight.name, dtype="f32", shape=weight.spec.shape),
        ),
        outputs=(BufferSpec(name="out", dtype="f32", shape=shape),),
        launches=(Launch(symbol="softmax", args=args),),
    )
    return Candidate(plan=plan, sources={"softmax.cpp": text})
