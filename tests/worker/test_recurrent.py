"""LSTMs for which fake tensors use PyTorch's decomposition instead of oneDNN: the states have the shapes of a real
run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._decomp import decompositions

from kernel_assistant.worker.graph.export import export_program, trace

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
    """This PyTorch, and this PyTorch with the states of versions before 2.13 (`squeeze(1)` of [1, B, H], now
    `squeeze(0)`).
    """
    current = decompositions.one_layer_lstm

    def older(inputs: Any, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        steps, states = current(inputs, hidden, *args, **kwargs)
        return steps, tuple(state.unsqueeze(0) for state in states)

    if request.param == "before 2.13":
        monkeypatch.setattr(decompositions, "one_layer_lstm", older)
    yield request.param
    assert decompositions.one_layer_lstm is (current if request.param == "as it is" else older)


@pytest.mark.parametrize("name", MODULES)
def test_states_have_the_shapes_of_a_real_run(name: str, version: str) -> None:
    model = MODULES[name].eval().requires_grad_(False)
    x = torch.randn(B, B, 8, dtype=next(model.parameters()).dtype)
    wanted = model(x)
    traced = trace(model, (x,), {}, [frozenset[int]()])
    assert [node["op"] for node in traced.graph["nodes"]].count("lstm.input") == 1
    shapes = [[int(size) for size in spec["shape"]] for spec in traced.out_specs]
    assert shapes == [list(tensor.shape) for tensor in wanted]


def test_a_free_batch_stays_free(version: str) -> None:
    model = MODULES["float64"].eval().requires_grad_(False)
    x = torch.randn(B, 5, 8, dtype=torch.float64)
    program = export_program(model, (x,), {}, [frozenset({0})])
    last = list(program.graph.output_node().args[0])[1].meta["val"]
    assert last.dim() == 3 and not isinstance(last.shape[1], int)
