"""Tests which candidates are labelled, and how rows are counted while they are written."""

from __future__ import annotations

from collections import deque
from itertools import islice
from pathlib import Path

import pytest

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.tasks.label import LineCounter
from kernel_assistant_training.tasks.labeller import candidates
from tests.generator.harness import export
from tests.generator.modules import CASES

DEVICES = [
    DeviceFacts(
        target="cuda", name="g", arch="sm_90", cores=132, cache_bytes=50 << 20, shared_bytes_per_block=227 << 10
    ),
    DeviceFacts(target="cpu", name="c", arch="x86-64-avx2", cores=4, threads=4, cache_bytes=32 << 20),
]


def _in_breadth(graph: OpGraph, device: DeviceFacts) -> list[str]:
    """The schedules and all their neighbours, breadth first."""
    first = initial(graph, device.target, device)
    waiting, seen, texts = deque(first), set(first), dict[str, None]()
    while waiting:
        schedule = waiting.popleft()
        texts.setdefault(emit(graph, schedule).hash())
        fresh = [one for one in neighbours(graph, schedule, device) if one not in seen]
        seen.update(fresh)
        waiting.extend(fresh)
    return list(texts)


@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.target)
def test_candidates_come_by_breadth_and_each_text_once(device: DeviceFacts) -> None:
    model, args = CASES["rows: softmax"]
    graph = export(model, *args)
    wanted = _in_breadth(graph, device)
    assert [one.hash() for one in candidates(graph, device)] == wanted
    assert len(wanted) > len(initial(graph, device.target, device))
    assert [one.hash() for one in islice(candidates(graph, device), 3)] == wanted[:3]


def test_half_a_line_is_no_row_yet(tmp_path: Path) -> None:
    count, file = LineCounter(), tmp_path / "labels-00.jsonl"
    assert count.of(tmp_path) == 0
    file.write_bytes(b"{}\n{}\n{")
    assert count.of(tmp_path) == count.of(tmp_path) == 2
    with file.open("ab") as more:
        more.write(b"}\n{}\n")
    (tmp_path / "labels-01.jsonl").write_bytes(b"{}\n")
    assert count.of(tmp_path) == LineCounter().of(tmp_path) == 5
