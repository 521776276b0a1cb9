"""The step that measures free wins, in a real environment: order, time, loss of the worker, cancelling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kernel_assistant.environment.session import Environment
from kernel_assistant.events import AnyEvent, FreeWinMeasured, Progress, Warned, decode_event, encode_event
from kernel_assistant.records import FreeWin, OptimizeResult, decode, encode
from kernel_assistant.session.kinds import free_wins
from kernel_assistant.session.kinds.free_wins import NO_TIME, FreeWinStep, reserved_seconds
from kernel_assistant.store import JobOptions
from tests.common.results import result
from tests.judge import kernels

TEXT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
    def forward(self, x):
        return torch.relu(self.conv(x))

def get_inputs():
    return [torch.randn(2, 4, 16, 16)]
"""
ALONE = ["compile", "channels_last", "freezing", "max_autotune"]
PLENTY = 250.0


class Opened:
    """An environment for one test, which may lose its worker."""

    def __init__(self, folder: Path) -> None:
        self.worker = kernels.new_worker(folder / "worker.log")
        self.cancel = threading.Event()
        self.context: AbstractContextManager[Environment] = kernels.environment(
            self.worker, folder, kernels.task(TEXT, "Net"), self.cancel
        )


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    made.worker.kill()


def test_a_third_is_set_aside_and_no_more_than_a_minute() -> None:
    assert reserved_seconds(JobOptions(budget=90.0)) == 30.0
    assert reserved_seconds(JobOptions(budget=3600.0)) == 60.0
    assert reserved_seconds(JobOptions(budget=90.0, free_wins=False)) == 0.0


@pytest.mark.timed
@pytest.mark.slow
def test_all_that_apply_are_measured_alone_and_together(opened: Opened) -> None:
    events: list[AnyEvent] = []
    with opened.context as environment:
        step = FreeWinStep(environment, PLENTY, events.append)
        assert step.run()
        assert environment.baseline(compiled=True).compile_ms, "the environment is as it was"
    wins = {win.name: win for win in step.wins}
    assert list(wins)[: len(ALONE) - 1] == ALONE[:-1] and len(wins) == len(step.wins)
    assert all(win.measured and win.passes for win in step.wins)
    assert wins["compile"].speedup_vs_compile is None
    # On a machine as busy as a test machine may be, one of them can come out slower; then it is no part.
    parts = [name for name in ALONE[1:] if not wins[name].loses]
    assert wins["together"].write == " + ".join(parts) if len(parts) > 1 else "together" not in wins
    told = [event.win for event in events if isinstance(event, FreeWinMeasured)]
    assert told[: len(ALONE) - 1] == step.wins[: len(ALONE) - 1]
    assert all(decode_event(encode_event(event)) == event for event in events)


def test_what_does_not_fit_is_said(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_wins, "ASSUMED_SECONDS", 2 * PLENTY)
    with opened.context as environment:
        step = FreeWinStep(environment, PLENTY, lambda event: None)
        assert step.run()
        assert environment.worker.alive
    assert [(win.name, win.note) for win in step.wins] == [(name, NO_TIME) for name in ALONE]


@pytest.mark.slow
def test_a_change_that_takes_the_worker_along_ends_the_step_and_not_the_job(opened: Opened) -> None:
    def emit(event: AnyEvent) -> None:
        if isinstance(event, Progress) and "channels last" in event.message:
            opened.worker.kill()

    with opened.context as environment:
        step = FreeWinStep(environment, PLENTY, emit)
        assert step.run()
    compiled, *others = step.wins
    assert compiled.measured and [win.name for win in others] == ALONE[1:]
    assert all("not measured: the worker " in win.note and not win.measured for win in others)


def test_a_worker_that_is_gone_already_is_a_warning(opened: Opened) -> None:
    events: list[AnyEvent] = []
    with opened.context as environment:
        opened.worker.kill()
        step = FreeWinStep(environment, PLENTY, events.append)
        assert step.run() and step.wins == []
    assert [type(event) for event in events] == [Warned]


@pytest.mark.slow
def test_a_cancel_ends_it_with_what_there_is(opened: Opened) -> None:
    def emit(event: AnyEvent) -> None:
        if isinstance(event, FreeWinMeasured):
            opened.cancel.set()

    with opened.context as environment:
        step = FreeWinStep(environment, PLENTY, emit)
        assert not step.run()
    assert [win.name for win in step.wins] == ["compile"]


def test_they_are_stored_with_the_result() -> None:
    win = FreeWin(name="tf32", write="x", ms=1.0, error_vs_fp64=1e-3, passes=False, note="changes results")
    kept = result(free_wins=(win,))
    assert decode(encode(kept), OptimizeResult) == kept


@pytest.mark.parametrize(("fields", "why"), [({"passes": True}, "carries its error"), ({}, "says why")])
def test_a_win_that_was_not_checked_does_not_pass(fields: dict[str, bool], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FreeWin(name="tf32", write="x", **fields)
