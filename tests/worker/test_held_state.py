"""Modules that change their own buffers: what the graph says of it, and that every call begins with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.records import OpGraph, to_builtins
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.cases import Case
from kernel_assistant.worker.open_task import OpenTask, open_task
from kernel_assistant.worker.verification import expect, reweighted

BATCH_NORM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return torch.relu(self.norm(x))

def get_inputs():
    return [torch.randn(8, 6)]
"""

AVERAGE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(6))

    def forward(self, x):
        self.average.lerp_(x.mean(0), 0.1)
        return x - self.average

def get_inputs():
    return [torch.randn(8, 6)]
"""


def opened(folder: Path, text: str, **changes: Any) -> OpenTask:
    path = folder / "net.py"
    path.write_text(text)
    task = build_task(str(path), target="cpu", numerics="kernelbench")
    return open_task({**to_builtins(task), **changes}, "cpu")


@pytest.fixture
def trained(tmp_path: Path) -> OpenTask:
    return opened(tmp_path, BATCH_NORM, training=True)


def test_new_values_are_outputs_and_counters_are_not_in_the_graph(trained: OpenTask) -> None:
    graph = from_builtins(trained.graph, OpGraph)
    assert len(graph.outputs) == len(trained.out_specs) == 3
    assert [graph.spec(name).shape for name in graph.outputs] == [("B", "6"), ("6",), ("6",)]
    assert trained.facts["state"] == [
        {"path": "norm.running_mean", "output": 1},
        {"path": "norm.running_var", "output": 2},
        {"path": "norm.num_batches_tracked", "add": 1},
    ]
    assert "num_batches_tracked" not in str(trained.graph)
    assert trained.facts["result"] == {"output": 0}


def test_calls_begin_with_the_same_values(trained: OpenTask) -> None:
    args, kwargs = trained.inputs(0, 7)
    first = trained.call(args, kwargs)
    trained.model(*args, **kwargs)  # as the user's calls, and those that are timed
    again, exact = trained.call(args, kwargs), trained.call64(args, kwargs)
    assert all(map(torch.equal, first, again)) and trained.reference_is_float64
    constants = trained.constants()
    mean = next(constants[name] for name, (_, path, _) in trained.traced.constants.items() if "mean" in path)
    batch = args[0].double().mean(0)
    torch.testing.assert_close(first[1].double(), 0.9 * mean.double() + 0.1 * batch)
    torch.testing.assert_close(exact[1], 0.9 * mean.double() + 0.1 * batch, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(first[2].double(), exact[2], rtol=1e-5, atol=1e-5)


def test_reweighted_calls_begin_with_other_values(trained: OpenTask) -> None:
    before = [value.clone() for value in trained.held.values.values()]
    expected = expect(trained, Case(0, "declared", None, 5, reweighted=True))
    assert expected is not None
    usual = trained.constants()
    held = [name for name, (_, path, _) in trained.traced.constants.items() if "running" in path]
    assert held and not any(torch.equal(expected.constants[name], usual[name]) for name in held)
    assert all(map(torch.equal, before, trained.held.values.values()))
    with reweighted(trained, 5, True):
        args, kwargs = trained.inputs(0, 5)
        assert all(map(torch.equal, trained.call(args, kwargs), expected.reference))


def test_sizes_that_were_not_declared(trained: OpenTask) -> None:
    """One row has no variance, which PyTorch refuses."""
    assert [dims["B"] for dims in trained.held_out_dims()] == [7, 12]


def test_any_buffer_will_do(tmp_path: Path) -> None:
    task = opened(tmp_path, AVERAGE)
    assert task.facts["state"] == [{"path": "average", "output": 1}]
    args, kwargs = task.inputs(0, 7)
    result, average = task.call(args, kwargs)
    torch.testing.assert_close(result, args[0] - average)


def test_evaluation_has_no_state(tmp_path: Path) -> None:
    assert opened(tmp_path, BATCH_NORM).facts["state"] == []
