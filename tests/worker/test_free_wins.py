"""Free wins: tests where they apply, that they are checked, and that they leave no trace."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.records import FreeWin, to_builtins
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.free_wins import free_changes, free_wins
from kernel_assistant.worker.free_wins.free_changes import Change, changes_for
from kernel_assistant.worker.free_wins.free_wins import NO_TIME, FreeWins
from kernel_assistant.worker.measuring.profiling import Profiler
from kernel_assistant.worker.measuring.roofline import Roofline
from kernel_assistant.worker.opening.open_task import OpenTask, open_task
from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.verification import expect
from tests.common.modules import POINTWISE

CONVOLUTION = """
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

PRODUCT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(64, 64)

    def forward(self, x):
        return torch.relu(self.proj(x))

def get_inputs():
    return [torch.randn(16, 64)]
"""

Opener = Callable[[str], OpenTask]
Measurer = Callable[[str], FreeWins]


@pytest.fixture
def opened(tmp_path: Path) -> Opener:
    """A function: text → the open task of its class Net."""

    def open_text(text: str) -> OpenTask:
        path = tmp_path / "net.py"
        path.write_text(text)
        return open_task(to_builtins(build_task(str(path), target="cpu", numerics="kernelbench")), "cpu")

    return open_text


@pytest.fixture
def measurer(opened: Opener) -> Iterator[Measurer]:
    held: list[tuple[FreeWins, Profiler]] = []

    def make(text: str) -> FreeWins:
        task = opened(text)
        base = expect(task, Case(0, "declared", None, 1))
        assert base is not None
        profiler = Profiler(task, base, Roofline(cache_bytes=1 << 20), "cpu")
        held.append((FreeWins(task, profiler, "kernelbench"), profiler))
        return held[-1][0]

    yield make
    for wins, profiler in held:
        wins.close()
        profiler.close()


def measured(row: dict[str, Any]) -> FreeWin:
    return from_builtins({key: value for key, value in row.items() if key != "compile_seconds"}, FreeWin)


def test_a_change_reaches_parts_that_a_function_calls(opened: Opener) -> None:
    text = CONVOLUTION.replace(
        "padding=1)", "padding=1)\n        conv = self.conv\n        self.run = lambda x: conv(x)"
    )
    task = opened(text.replace("torch.relu(self.conv(x))", "torch.relu(self.run(x))"))
    transform = changes_for(task)["channels_last"].transform
    assert transform is not None
    changed = transform(task.model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.zero_()
        assert not changed(torch.ones(2, 4, 16, 16)).any()


def test_where_each_applies(opened: Opener) -> None:
    assert list(changes_for(opened(POINTWISE))) == ["compile"]
    assert list(changes_for(opened(PRODUCT))) == ["compile", "freezing", "max_autotune"]
    assert list(changes_for(opened(CONVOLUTION))) == ["compile", "channels_last", "freezing", "max_autotune"]


HALF = PRODUCT.replace("nn.Linear(64, 64)", "nn.Linear(64, 64).half()").replace("randn(16, 64)", "randn(16, 64).half()")


def test_a_half_type_on_a_cpu_is_held_against_float32(opened: Opener, measurer: Measurer) -> None:
    assert "float32" in changes_for(opened(HALF))
    row = measured(measurer(HALF).measure(["float32"], 60.0))
    assert row.passes and row.measured and (row.error_ratio or 9.0) <= 1.0
    assert row.write == "module = module.float()" and "converting" in row.note


def test_pooling_of_volumes_has_their_layout(opened: Opener) -> None:
    text = POINTWISE.replace("torch.relu(x) * 2", "torch.nn.functional.max_pool3d(x, 2)").replace(
        "64, 128", "1, 2, 4, 4, 4"
    )
    change = changes_for(opened(text))["channels_last"]
    assert change.write == "module = module.to(memory_format=torch.channels_last_3d)"


@pytest.mark.timed
@pytest.mark.slow
def test_channels_last_is_checked_and_timed(measurer: Measurer) -> None:
    wins = measurer(CONVOLUTION)
    plain = measured(wins.measure(["compile"], 60.0))
    assert plain.passes and plain.measured and plain.speedup_vs_eager_ci is not None
    assert plain.speedup_vs_compile is None
    win = measured(wins.measure(["channels_last"], 60.0))
    assert win.passes and win.measured and win.error_ratio is not None and win.error_ratio < 4
    assert win.speedup_vs_compile is not None and win.speedup_vs_compile_ci is not None
    low, high = win.speedup_vs_compile_ci
    assert 0 < low <= win.speedup_vs_compile <= high
    conv = wins.task.model.get_submodule("conv")
    assert isinstance(conv, torch.nn.Conv2d) and conv.weight.is_contiguous(), "the user's module stays as it was"


@pytest.mark.timed
@pytest.mark.slow
def test_freezing_and_together_leave_settings_and_module_alone(measurer: Measurer) -> None:
    wins = measurer(CONVOLUTION)
    before = copy.deepcopy(wins.task.model.state_dict())
    frozen = measured(wins.measure(["freezing"], 60.0))
    assert frozen.passes and frozen.measured and "weights" in frozen.note
    both = measured(wins.measure(["channels_last", "freezing"], 60.0))
    assert (both.name, both.write) == ("together", "channels_last + freezing")
    assert both.passes and both.measured
    assert not torch._inductor.config.freezing
    after = wins.task.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_freezing_does_what_its_note_says(opened: Opener) -> None:
    task = opened(PRODUCT)
    change = changes_for(task)["freezing"]
    x = torch.randn(16, 64)
    call = free_changes.compiled(task, [change])
    with free_changes.scopes([change]), torch.no_grad():
        before = call(x)
        task.model.get_submodule("proj").weight.mul_(2)  # type: ignore[operator, union-attr]
        assert torch.equal(call(x), before), "the weights were constants of the compiled code"
    torch._dynamo.reset()


class Wrong(torch.nn.Module):
    def __init__(self, child: torch.nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: torch.Tensor) -> Any:
        return self.child(x) * 1.01


def test_a_change_of_results_is_said_with_its_error(measurer: Measurer) -> None:
    wins = measurer(POINTWISE)
    wins.changes["wrong"] = Change("wrong", "x", transform=Wrong)
    win = measured(wins.measure(["wrong"], 60.0))
    assert win.measured and not win.passes and win.note.startswith("changes results")
    assert win.error_vs_fp64 is not None and win.error_vs_fp64 > 1e-3


def test_a_failure_is_said_and_settings_come_back(measurer: Measurer) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            raise ValueError("no such layout")

    wins = measurer(POINTWISE)
    wins.changes["broken"] = Change(
        "broken", "x", transform=lambda model: Broken(), scope=free_changes._freezing_on, options={"freezing": True}
    )
    win = measured(wins.measure(["broken"], 60.0))
    assert not win.passes and not win.measured
    assert win.note.startswith("not measured: ") and "no such layout" in win.note
    assert not torch._inductor.config.freezing
    assert torch._dynamo.config.recompile_limit != free_wins.MOST_VERSIONS


def test_without_time_it_is_checked_and_not_timed(measurer: Measurer) -> None:
    win = measured(measurer(POINTWISE).measure(["compile"], 0.0))
    assert win.passes and not win.measured and win.note == NO_TIME


@pytest.mark.timed
@pytest.mark.slow
def test_max_autotune(measurer: Measurer) -> None:
    win = measured(measurer(PRODUCT).measure(["max_autotune"], 300.0))
    assert win.passes and win.measured
    assert win.write == 'module = torch.compile(module, mode="max-autotune-no-cudagraphs")'
