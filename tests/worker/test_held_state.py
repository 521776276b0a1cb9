"""Modules that change their own buffers: tests their graph, and that every call begins with the same values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.worker.opening.open_task import OpenTask
from kernel_assistant.worker.process.worker_errors import TaskError
from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.verification import expect, reweighted
from tests.worker.opened import module_text, open_text

BATCH_NORM = module_text("return torch.relu(self.norm(x))", "torch.randn(8, 6)", "self.norm = nn.BatchNorm1d(6)")
AVERAGE = module_text(
    "self.average.lerp_(x.mean(0), 0.1)\nreturn x - self.average",
    "torch.randn(8, 6)",
    'self.register_buffer("average", torch.zeros(6))',
)


@pytest.fixture
def trained(tmp_path: Path) -> OpenTask:
    return open_text(tmp_path, BATCH_NORM, training=True)


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
    """With one row there is no variance, so PyTorch refuses the call."""
    assert [dims["B"] for dims in trained.held_out_dims()] == [7, 12]


def test_any_buffer_will_do(tmp_path: Path) -> None:
    task = open_text(tmp_path, AVERAGE)
    assert task.facts["state"] == [{"path": "average", "output": 1}]
    args, kwargs = task.inputs(0, 7)
    result, average = task.call(args, kwargs)
    torch.testing.assert_close(result, args[0] - average)


def test_evaluation_has_no_state(tmp_path: Path) -> None:
    assert open_text(tmp_path, BATCH_NORM).facts["state"] == []


#: A recurrent cell that keeps its state: FIRST is how it begins, LAST how a call leaves it.
KEPT = module_text(
    "BEGIN\nstate = torch.tanh(self.cell(torch.cat((x, self.state), 1)))\nLAST\nreturn self.out(state)",
    "torch.randn(5, 6), torch.randn(5, 4)",
    "self.cell, self.out = nn.Linear(10, 4), nn.Linear(4, 3)\nFIRST",
    "x, *start",
)
ATTRIBUTE, BUFFER = "self.state = torch.zeros(5, 4)", "self.register_buffer('state', torch.zeros(5, 4))"
REPLACED, WRITTEN = "self.state = state", "self.state.copy_(state)"


def _kept(first: str, last: str, begin: str = "pass") -> str:
    return KEPT.replace("FIRST", first).replace("LAST", last).replace("BEGIN", begin)


@pytest.mark.parametrize(
    ("text", "kind", "cause"),
    [
        (_kept(ATTRIBUTE, REPLACED), "nondeterministic", "each call changes self.state, which is no buffer"),
        (_kept(ATTRIBUTE, WRITTEN), "nondeterministic", "each call changes self.state, which is no buffer"),
        (_kept(ATTRIBUTE, REPLACED, "self.state.copy_(start[0])"), "mutates_inputs", "changes self.state, which is no"),
        (_kept(BUFFER, REPLACED), "mutates_inputs", "changes its own state"),
    ],
)
def test_state_kept_otherwise_is_named_with_what_to_write(text: str, kind: str, cause: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        open_text(tmp_path, text)
    assert (caught.value.kind, cause in caught.value.message) == (kind, True), caught.value.message
    assert "self.state.copy_(" in caught.value.next_step
    assert ("register_buffer" in caught.value.next_step) == (BUFFER not in text)
