"""The module that hostile plans attack: a softmax over wide rows, whose outputs are small everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import BufferSpec, Candidate, Launch, Numerics, Plan
from kernel_assistant.targets.base import DeviceFacts
from tests.common.tasks import task_of, unattended


def module(result: str, given: str, weight: str = "") -> str:
    """The text of a module that returns `result` for the input `given`; `weight` is its parameter, if it has one."""
    init = f"    def __init__(self):\n        super().__init__()\n        self.w = torch.nn.Parameter({weight})\n\n"
    return f"""
import torch

class Model(torch.nn.Module):
{init if weight else ""}    def forward(self, x):
        return {result}

def get_inputs():
    return [{given}]
"""


def softmax_text(rows: int, columns: int) -> str:
    """The module for inputs of rows × columns."""
    return module("torch.softmax(x * self.w, -1)", f"torch.randn({rows}, {columns})", f"torch.rand({columns}) + 0.5")


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
    task = task_of(path, text, "Model", target=device.target, numerics=Numerics(numerics))
    shared = {"device": device, "worker": worker, "cache_dir": cache_dir, "nominal": nominal}
    with open_environment(task, **shared, **unattended()) as environment:
        yield environment


def launching(environment: Environment, symbol: str, text: str, *sizes: tuple[str, str]) -> Candidate:
    """A plan that launches `symbol` of the source text once; `sizes` are arguments beside those of the input."""
    graph, out = environment.graph, environment.graph.spec(environment.graph.outputs[0])
    given, weights = graph.spec("x0"), [value for value in graph.inputs if value.kind == "param"]
    args = (("x", "x0"), *(("w", weight.name) for weight in weights), ("out", "out"))
    args = (*args, ("rows", given.shape[0]), ("n", given.shape[1]), *sizes)
    read = (("x0", given), *((weight.name, weight.spec) for weight in weights))
    *inputs, output = (BufferSpec(name=name, dtype=one.dtype, shape=one.shape) for name, one in (*read, ("out", out)))
    launch = Launch(symbol=symbol, args=args)
    plan = Plan(target="cpu", dims=tuple(graph.dims), inputs=tuple(inputs), outputs=(output,), launches=(launch,))
    return Candidate(plan=plan, sources={f"{symbol}.cpp": text})


def softmax_candidate(environment: Environment, text: str) -> Candidate:
    """A plan that launches `softmax` of the source text once."""
    return launching(environment, "softmax", text)
