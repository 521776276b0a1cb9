"""Recurrent layers have results with the shapes of a real run, and not every step is computed for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._decomp import decompositions

from kernel_assistant.worker.graph.export import ExportedModule, export_program, trace

B = 3


class Recurrent(torch.nn.Module):
    def __init__(self, dtype: torch.dtype, **settings: Any) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 16, dtype=dtype, **settings)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        steps, (last, cell) = self.lstm(x)
        return steps, last + 0.5, cell


MODULES = {
    "float64": Recurrent(torch.float64, batch_first=True),
    "projections": Recurrent(torch.float32, proj_size=4, num_layers=2),
    "both ways": Recurrent(torch.float64, bidirectional=True, num_layers=2),
}


@pytest.fixture(params=["as it is", "before 2.13"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This PyTorch, and with the states of versions before 2.13 (`squeeze(1)` of [1, B, H], now `squeeze(0)`)."""
    current = decompositions.one_layer_lstm

    def older(inputs: Any, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        steps, states = current(inputs, hidden, *args, **kwargs)
        return steps, tuple(state.unsqueeze(0) for state in states)

    if request.param == "before 2.13":
        monkeypatch.setattr(decompositions, "one_layer_lstm", older)
    yield request.param
    assert decompositions.one_layer_lstm is (current if request.param == "as it is" else older)


def _shaped_as_run(model: torch.nn.Module, steps: int) -> ExportedModule:
    """The export, whose outputs have the shapes of a real run."""
    model.eval().requires_grad_(False)
    x = torch.randn(steps, B, 8, dtype=next(model.parameters()).dtype)
    traced = trace(model, (x,), {}, [frozenset[int]()])
    shapes = [[int(size) for size in spec["shape"]] for spec in traced.out_specs]
    assert shapes == [list(tensor.shape) for tensor in model(x)]
    return traced


@pytest.mark.parametrize("name", MODULES)
def test_states_have_the_shapes_of_a_real_run(name: str, version: str) -> None:
    traced = _shaped_as_run(MODULES[name], B)
    assert [node["op"] for node in traced.graph["nodes"]].count("lstm.input") == 1


def test_a_free_batch_stays_free(version: str) -> None:
    model = MODULES["float64"].eval().requires_grad_(False)
    x = torch.randn(B, 5, 8, dtype=torch.float64)
    program = export_program(model, (x,), {}, [frozenset({0})])
    last = list(program.graph.output_node().args[0])[1].meta["val"]
    assert last.dim() == 3 and not isinstance(last.shape[1], int)


RECURRENT = {
    "gru": lambda: torch.nn.GRU(8, 16, num_layers=2, bidirectional=True),
    "gru, batch first": lambda: torch.nn.GRU(8, 16, batch_first=True, bias=False),
    "tanh": lambda: torch.nn.RNN(8, 16, bidirectional=True),
    "relu": lambda: torch.nn.RNN(8, 16, nonlinearity="relu", dtype=torch.float64),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_others_have_the_shapes_of_a_real_run(name: str) -> None:
    _shaped_as_run(RECURRENT[name](), 7)


def test_a_long_sequence_takes_no_more_steps_than_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, calls = decompositions.gru_cell, list[int]()

    def counted(*args: Any) -> Any:
        calls.append(1)
        return cell(*args)

    monkeypatch.setattr(decompositions, "gru_cell", counted)
    model, counts = torch.nn.GRU(8, 16, num_layers=2, bidirectional=True).eval(), []
    for steps in (4, 400):
        calls.clear()
        trace(model, (torch.randn(steps, B, 8),), {}, [frozenset[int]()])
        counts.append(len(calls))
    assert counts[0] == counts[1] > 0


def test_one_step_of_the_wrong_size_is_refused_as_it_was() -> None:
    with pytest.raises(Exception, match=r"[Ss]ize|shape"):
        trace(torch.nn.GRU(8, 16).eval(), (torch.randn(4, B, 9),), {}, [frozenset[int]()])
