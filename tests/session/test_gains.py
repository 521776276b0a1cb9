"""The gains from TF32 in earlier jobs, in words, and only for the same device."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.records import FreeWin
from kernel_assistant.session.reporting.gains import tf32_gain
from kernel_assistant.store import JobOptions, JobState, Store
from tests.common.results import result
from tests.common.tasks import task_of


def add(store: Store, device: str, gain: float | None, name: str = "tf32") -> None:
    row = store.add_job(task_of("/net.py", ""), JobOptions(), "cuda:0")
    win = FreeWin(name=name, write="x", speedup_vs_compile=gain, note="changes results")
    store.mark_ended(row.id, JobState.done, result=result(target="cuda", device=device, free_wins=(win,)))


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([], ""),
        ([("H200", None)], ""),
        ([("A100", 2.0)], ""),
        (
            [("H200", 1.5), ("A100", 9.0)],
            "torch.compile was 1.50 times as fast with it in the job that measured it here",
        ),
        ([("H200", 2.0), ("H200", 1.25)], "torch.compile was 1.25 to 2.00 times as fast with it in 2 jobs here"),
    ],
)
def test_gain(tmp_path: Path, gains: list[tuple[str, float | None]], words: str) -> None:
    store = Store(tmp_path)
    for device, gain in gains:
        add(store, device, gain)
    add(store, "H200", 7.0, name="freezing")
    assert tf32_gain(store, "H200") == words
