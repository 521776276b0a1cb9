"""Recurrent layers as products and kernels of all steps: in the emulator with one block, on a GPU with clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.loops.recurrence import as_recurrence
from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.print.cuda.templates.recurrence import Division
from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.search.search_templates import neighbours_template
from kernel_assistant.records import OpGraph
from tests.generator.by_parts import ByParts
from tests.generator.checks import check_around, check_compiles, check_names, check_on_gpu, check_read_back
from tests.generator.harness import H200, Computed, Tensors, as_list, bindings, export, resized, spread


class Recurrent(nn.Module):
    """All results of a recurrent layer, scaled, so that a kernel reads them."""

    def __init__(self, kind: type[nn.RNNBase], width: int, hidden: int, given: bool = False, **options: Any) -> None:
        super().__init__()
        self.layer, self.given = kind(width, hidden, **options), given

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        first = (states if len(states) > 1 else states[0]) if self.given else None
        steps, last = self.layer(x, first)
        return (steps * 2, *last) if isinstance(last, tuple) else (steps * 2, last)


def _begun(begin: Callable[[torch.Tensor], torch.Tensor], layers: int = 1) -> nn.Module:
    """A GRU whose first state is computed."""

    def steps_and_last(x: torch.Tensor, h: torch.Tensor, layer: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        steps, last = layer(x, begin(h))
        return steps + 1, last

    return Computed(steps_and_last, nn.GRU(5, 8, layers))


#: An encoder whose last states are a decoder's first ones.
CHAIN = Computed(lambda x, y, encoder, decoder: decoder(y, encoder(x)[1])[0], nn.LSTM(5, 8), nn.LSTM(6, 8))

Case = tuple[nn.Module, Tensors, Schedule | None]


def _one_block(**parameters: int) -> Schedule:
    return make("cuda", "recurrence", cluster=1, **parameters)


#: Name → module, inputs, the schedule of its recurrences (None: the first guess).
CASES: dict[str, Case] = {
    "lstm": (Recurrent(nn.LSTM, 5, 8), (spread(4, 3, 5),), None),
    "lstm, two layers, batch first": (
        Recurrent(nn.LSTM, 5, 12, num_layers=2, batch_first=True),
        (spread(3, 6, 5),),
        _one_block(batch=2, lanes=8, held=40),
    ),
    "lstm, given states, two at once": (
        Recurrent(nn.LSTM, 6, 10, given=True, num_layers=2),
        (spread(5, 5, 6), spread(2, 5, 10), spread(2, 5, 10).cos()),
        _one_block(batch=8, lanes=16, held=40),
    ),
    "lstm, both directions, weights in shared memory": (
        Recurrent(nn.LSTM, 4, 20, bidirectional=True, num_layers=2, batch_first=True),
        (spread(3, 4, 4),),
        _one_block(batch=4, lanes=4, held=4),
    ),
    "gru": (Recurrent(nn.GRU, 5, 9), (spread(4, 3, 5),), None),
    "gru, both directions, given state": (
        Recurrent(nn.GRU, 5, 16, given=True, bidirectional=True, num_layers=2),
        (spread(5, 4, 5), spread(4, 4, 16)),
        _one_block(batch=1, lanes=32, held=16),
    ),
    "rnn": (Recurrent(nn.RNN, 5, 7), (spread(4, 3, 5),), _one_block(batch=2, lanes=4, held=16)),
    "rnn relu, without biases": (
        Recurrent(nn.RNN, 5, 33, nonlinearity="relu", bias=False),
        (spread(4, 3, 5),),
        _one_block(batch=1, lanes=8, held=16),
    ),
    "state of one for all": (_begun(lambda h: h[:, :1].expand(-1, 3, -1)), (spread(4, 3, 5), spread(1, 3, 8)), None),
    "turned states": (_begun(lambda h: h.transpose(0, 1), 2), (spread(4, 3, 5), spread(3, 2, 8)), None),
    "computed state": (_begun(torch.tanh), (spread(4, 3, 5), spread(1, 3, 8)), None),
    "encoder and decoder": (CHAIN, (spread(4, 3, 5), spread(2, 3, 6)), None),
    "one step": (Recurrent(nn.GRU, 5, 9, bidirectional=True), (spread(1, 2, 5),), None),
}
#: Wider ones, for the GPU: clusters, weights that registers do not hold.
WIDE: dict[str, tuple[nn.Module, Tensors]] = {
    "lstm 256": (Recurrent(nn.LSTM, 128, 256, num_layers=2, batch_first=True), (spread(10, 65, 128),)),
    "lstm 512": (Recurrent(nn.LSTM, 64, 512), (spread(33, 5, 64),)),
    "gru 256, both": (
        Recurrent(nn.GRU, 128, 256, given=True, bidirectional=True, num_layers=2),
        (spread(40, 10, 128), spread(4, 10, 256)),
    ),
    "gru 100": (Recurrent(nn.GRU, 32, 100, batch_first=True), (spread(130, 9, 32),)),
    "rnn 700": (Recurrent(nn.RNN, 16, 700), (spread(12, 3, 16),)),
}
HALVES = {
    "lstm bf16": (Recurrent(nn.LSTM, 32, 64).bfloat16(), (spread(9, 4, 32).bfloat16(),)),
    "gru half": (Recurrent(nn.GRU, 32, 64).half(), (spread(9, 4, 32).half(),)),
}


def _recurrences(graph: OpGraph) -> list[OpGraph]:
    return [part.graph for part in cut(graph, "cuda").parts if as_recurrence(part.graph) is not None]


@pytest.mark.parametrize("name", CASES)
def test_values_with_one_block(name: str, tmp_path: Path) -> None:
    model, args, schedule = CASES[name]
    graph = export(model, *args)
    assert not any(part.call for part in cut(graph, "cuda").parts)
    parts = ByParts(graph, tmp_path, schedule)
    with torch.no_grad():
        for given in (args, resized(args, 7)) if "batch first" in name else (args,):
            got, want = parts(bindings(graph, model, given)), model(*given)
            torch.testing.assert_close(got, as_list(want), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_text_is_read_back(name: str) -> None:
    model, args, _ = CASES[name]
    graph = export(model, *args)
    check_read_back(graph, initial(graph, "cuda", H200)[:3])


@pytest.mark.parametrize("name", [*WIDE, *HALVES])
def test_clusters_where_one_block_is_too_small(name: str) -> None:
    model, args = (WIDE | HALVES)[name]
    graph = export(model, *args)
    first = initial(graph, "cuda", H200)[0]
    emit(graph, first)
    clusters = [part["cluster"] for part in first.parts if part.form == "recurrence"]
    assert len(clusters) == len(_recurrences(graph))
    assert all(cluster > 1 for cluster in clusters) or name not in WIDE or "100" in name


def test_neighbours_of_a_recurrence() -> None:
    model, args = WIDE["lstm 256"]
    (part, *_) = _recurrences(export(model, *args))
    first = check_around(part)
    recurrence = as_recurrence(part)
    assert recurrence is not None
    left = neighbours_template(part, recurrence, first.parts[0], H200, frozenset(["cluster"]))
    assert left and all(one["cluster"] == first.parts[0]["cluster"] for one in left)


def test_shared_memory_of_the_device() -> None:
    model, args = Recurrent(nn.LSTM, 16, 128), (spread(4, 1, 16),)
    ada = replace(H200, name="L40S", arch="sm_89", shared_bytes_per_block=99 << 10)
    for schedule in initial(export(model, *args), "cuda", ada):
        for part in (part for part in schedule.parts if part.form == "recurrence"):
            division = Division(128, 4, **{name: part[name] for name in ("cluster", "batch", "lanes", "held")})
            assert division.shared + division.states <= 99 << 10


@pytest.mark.parametrize("name", ["lstm", "gru, both directions, given state"])
def test_names_for_sizes(name: str) -> None:
    model, args, _ = CASES[name]
    assert "constexpr int H = D" in check_names(model, args)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm 512", "gru 256, both", "gru half"])
def test_clusters_compile(name: str, tmp_path: Path) -> None:
    model, args = (WIDE | HALVES)[name]
    graph = export(model, *args)
    check_compiles(graph, initial(graph, "cuda", H200)[0], tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*CASES, *WIDE, *HALVES])
def test_values_on_a_gpu(name: str, tmp_path: Path) -> None:
    model, args = ({key: case[:2] for key, case in CASES.items()} | WIDE | HALVES)[name]
    check_on_gpu(model, args, tmp_path, 6, bound=1e-4)


@pytest.mark.parametrize(
    "model", [Recurrent(nn.LSTM, 5, 8, proj_size=3), Recurrent(nn.LSTM, 5, 8).double(), Recurrent(nn.LSTM, 5, 1500)]
)
def test_what_stays_a_call_of_pytorch(model: nn.Module) -> None:
    dtype = next(model.parameters()).dtype
    graph = export(model, spread(4, 3, 5).to(dtype))
    forms = [schedule.forms() for schedule in initial(graph, "cuda", H200)]
    assert forms and all("recurrence" not in one and "residual" in one for one in forms)


def test_a_gpu_without_clusters_has_pytorchs_call(tmp_path: Path) -> None:
    model, args = WIDE["lstm 256"]
    ampere = replace(H200, name="A100", arch="sm_80")
    assert "recurrence" not in initial(export(model, *args), "cuda", ampere)[0].forms()
    small, args = CASES["lstm"][:2]
    forms = [schedule.forms() for schedule in initial(export(small, *args), "cuda", ampere)]
    assert "recurrence" in forms[0] and "residual" in forms[-1]
