"""Free wins: tests where they apply, that they are checked, and that they leave no trace."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.records import FreeWin
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.worker.free_wins import free_changes, free_wins
from kernel_assistant.worker.free_wins.free_changes import Change, changes_for
from kernel_assistant.worker.free_wins.free_wins import NO_TIME, FreeWins
from kernel_assistant.worker.opening.open_task import OpenTask
from tests.common.modules import POINTWISE
from tests.worker.opened import module_text, open_text

CONVOLUTION = module_text(
    "return torch.relu(self.conv(x))", "torch.randn(2, 4, 16, 16)", "self.conv = nn.Conv2d(4, 8, 3, padding=1)"
)
PRODUCT = module_text("return torch.relu(self.proj(x))", "torch.randn(16, 64)", "self.proj = nn.Linear(64, 64)")

Opener = Callable[[str], OpenTask]
Measurer = Callable[[str], FreeWins]


@pytest.fixture
def opened(tmp_path: Path) -> Opener:
    """A function: text → the open task of its class."""
    return partial(open_text, tmp_path)


def measured(row: dict[str, Any]) -> FreeWin:
    """A row of free wins as records have it."""
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
    text = module_text("return F.max_pool3d(x, 2)", "torch.randn(1, 2, 4, 4, 4)")
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


class Wrong(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) * 1.01


class Broken(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        raise ValueError("no such layout")


def test_a_change_of_results_is_said_with_its_error(measurer: Measurer) -> None:
    wins = measurer(POINTWISE)
    wins.changes["wrong"] = Change("wrong", "x", transform=Wrong)
    win = measured(wins.measure(["wrong"], 60.0))
    assert win.measured and not win.passes and win.note.startswith("changes results")
    assert win.error_vs_fp64 is not None and win.error_vs_fp64 > 1e-3


def test_a_failure_is_said_and_settings_come_back(measurer: Measurer) -> None:
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
