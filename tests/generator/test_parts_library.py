"""Graphs with products and convolutions: tests which nodes go to a library, and the kernels around them."""

from __future__ import annotations

import torch
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan.partition import partition
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.generator.support import classify
from kernel_assistant.records import OpGraph
from tests.generator.harness import export
from tests.generator.test_round_trip import DEVICES


class Attention(nn.Module):
    """Its heads are slices of one projection, so that a library cannot read them in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.heads = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, steps, width = x.shape
        parts = self.heads(self.norm(x)).chunk(3, -1)
        query, key, value = (part.view(rows, steps, 4, 16).transpose(1, 2) for part in parts)
        shares = torch.softmax(query @ key.transpose(-1, -2) / 4, -1)
        return x + self.out((shares @ value).transpose(1, 2).reshape(rows, steps, width))


def _parts(graph: OpGraph) -> list[tuple[str, list[str]]]:
    return [
        (part.kind, [node.op.partition(".")[0] for node in part.graph.nodes]) for part in partition(graph, "cuda").parts
    ]


def test_what_a_library_fuses_is_one_part_and_the_rest_is_ours() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.GELU(), nn.LayerNorm(32))
    assert _parts(export(model, torch.rand(16, 64))) == [
        ("library", ["linear", "relu"]),
        ("library", ["linear"]),
        ("kernel", ["gelu", "layer_norm"]),
    ]


def test_a_reshape_between_parts_is_no_part() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 10))
    found = partition(export(model, torch.rand(4, 3, 16, 16)), "cuda")
    assert [part.kind for part in found.parts] == ["library", "kernel", "library"]
    (reshaped,) = found.same.keys() & {*found.parts[2].inputs}
    assert found.same[reshaped] == found.parts[1].outputs[0]


def test_heads_are_written_where_a_library_can_read_them() -> None:
    graph = export(Attention(), torch.rand(2, 10, 64))
    found = _parts(graph)
    assert [operators for kind, operators in found if kind == "library"] == [
        ["linear"],
        ["transpose", "matmul"],
        ["matmul"],
        ["linear", "add"],
    ]
    assert sum(operators.count("ka_copy") for _, operators in found) == 4
    assert ("kernel", ["div", "softmax"]) in found


def test_candidates_with_library_calls_come_back() -> None:
    graph = export(Attention(), torch.rand(2, 10, 64))
    first = initial(graph, "cuda", DEVICES["cuda"])
    for schedule in [*first, *neighbours(graph, first[0], DEVICES["cuda"])]:
        candidate = emit(graph, schedule)
        assert parse(candidate) == (graph, schedule)
        names = {spec.name for spec in candidate.plan.buffers}
        calls = [launch for launch in candidate.plan.launches if launch.library]
        assert len(calls) == 4
        assert all(value in names for launch in calls for field, value in launch.args if field in ("a", "b", "out"))


def test_there_is_no_library_on_the_cpu() -> None:
    assert classify(export(nn.Linear(4, 4), torch.rand(3, 4)), "cpu").startswith("operator linear: nothing is left")
