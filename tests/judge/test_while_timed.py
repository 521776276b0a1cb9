"""Outputs are compared in the same way while timed as when verified: the same values pass, for every part that is
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.records import Numerics
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.measuring import timed_outputs
from kernel_assistant.worker.measuring.profiling import Profiler
from kernel_assistant.worker.measuring.roofline import Roofline
from kernel_assistant.worker.measuring.timed_outputs import few_places
from kernel_assistant.worker.opening.open_task import OpenTask, open_task
from kernel_assistant.worker.verifying.verification import (
    Case,
    ExpectedOutputs,
    IncorrectOutput,
    WorstErrors,
    check_outputs,
    expect,
)

SIZE = 1 << 16
#: Large values in front, small ones behind.
SCALED = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.cat([torch.ones({SIZE // 2}), torch.full(({SIZE // 2},), 1e-7)]))

    def forward(self, x):
        return x * self.scale

def get_inputs():
    return [torch.randn(2, {SIZE})]
"""
#: A remainder jumps where the product comes upon an integer: in float32 at other places than in float64, some of many.
JUMPING = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.frac(x * 4000.0)

def get_inputs():
    return [torch.rand(64, {SIZE // 8})]
"""

PLACES = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.argmax(1)

def get_inputs():
    return [torch.rand({SIZE}, 8)]
"""


class AskedAgain:
    """A candidate whose outputs are compared once more: it writes `value` into its first output, or the value that is
    already there.
    """

    def __init__(self, profiler: Profiler | None = None, value: torch.Tensor | None = None) -> None:
        self._profiler, self._value = profiler, value

    def both(self, first: int, count: int) -> tuple[float, float]:
        if self._profiler is not None and self._value is not None:
            self._profiler.sets.outputs[first][0].copy_(self._value)
        return 1e-3 * count, 0.0


SAME: Any = AskedAgain()


@contextmanager
def _timed(
    folder: Path, text: str, numerics: str = "kernelbench"
) -> Iterator[tuple[OpenTask, Profiler, ExpectedOutputs]]:
    """Returns the task, a profiler, and the expected outputs of its first set."""
    path = folder / "model.py"
    path.write_text(text)
    task = open_task(to_builtins(build_task(str(path), target="cpu", numerics=numerics)), "cpu")
    base = expect(task, Case(0, "declared", None, 1))
    assert base is not None
    made = Profiler(task, base, Roofline(cache_bytes=1 << 20), "cpu", numerics=numerics)
    tensors = [tensor.clone() for tensor in made.sets.inputs[0]]
    args, kwargs = task.unflatten(tensors)
    outputs = list(task.call(args, kwargs)), list(task.call64(args, kwargs))
    try:
        yield task, made, ExpectedOutputs(base.case, tensors, *outputs, base.dims, base.constants)
    finally:
        made.close()


def _verified(expected: ExpectedOutputs, got: torch.Tensor, numerics: str = "kernelbench") -> None:
    check_outputs({"outputs": [{"name": "out0"}]}, [got], expected, numerics, WorstErrors())


def test_small_values_are_held_against_the_whole_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _timed(tmp_path, SCALED) as (_, profiler, expected):
        got = expected.reference[0].clone()
        got[1, -100:] += 1e-6
        _verified(expected, got)
        profiler.sets.outputs[0][0].copy_(got)
        monkeypatch.setattr(timed_outputs, "_window", lambda output: (output.numel() - 100, output.numel()))
        profiler.outputs.check(SAME, [0])
        profiler.sets.outputs[0][0][1, -100:] += 1e-3
        with pytest.raises(IncorrectOutput, match="other values while timed"):
            profiler.outputs.check(SAME, [0])


def test_a_jump_is_excused_by_those_that_pytorch_makes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _timed(tmp_path, JUMPING) as (_, profiler, expected):
        reference, want = expected.reference[0], expected.want[0]
        assert ((reference - want).abs() > 0.5).sum() > 1
        # On the declared inputs there were none by luck.
        profiler.outputs.own_errors = [0.0]
        got = reference.clone().reshape(-1)
        place = int(torch.where((reference - want).abs() > 0.5, 0.5, want).reshape(-1)[1000:-1000].argmax()) + 1000
        got[place] -= 1
        _verified(expected, got.reshape(reference.shape))
        profiler.sets.outputs[0][0].copy_(got.reshape(reference.shape))
        monkeypatch.setattr(timed_outputs, "_window", lambda _: (place - 4, place + 4))
        profiler.outputs.check(SAME, [0])


@pytest.mark.parametrize("numerics", [one.value for one in Numerics])
def test_the_tolerance_is_the_task_s_and_not_less(numerics: str, tmp_path: Path) -> None:
    off = {"paper": 5e-3, "kernelbench": 5e-5, "strict": 1e-7}[numerics]
    with _timed(tmp_path, SCALED, numerics) as (_, profiler, expected):
        got = expected.reference[0] * (1 + off)
        _verified(expected, got, numerics)
        profiler.sets.outputs[0][0].copy_(got)
        profiler.outputs.check(SAME, [0])
        profiler.sets.outputs[0][0].mul_(1.05)
        with pytest.raises(IncorrectOutput, match="other values while timed"):
            profiler.outputs.check(SAME, [0])


def test_few_places_are_few_of_many() -> None:
    assert few_places(1, 20) and few_places(8, 1000) and few_places(100, 10**6)
    assert not few_places(9, 1000) and not few_places(101, 10**6)
    # All of a loss, and half of a pair.
    assert not few_places(1, 1) and not few_places(1, 2) and not few_places(2, 31)


def test_another_value_at_a_jump_is_wrong_and_no_cheating(tmp_path: Path) -> None:
    with _timed(tmp_path, SCALED) as (_, profiler, expected):
        for count, outcome, said in ((3, "incorrect", "at a jump, perhaps"), (SIZE // 4, "cheating", "other values")):
            got = expected.reference[0].clone()
            got[1, :count] += 5.0
            profiler.sets.outputs[0][0].copy_(got)
            with pytest.raises(IncorrectOutput, match=said) as caught:
                profiler.outputs.check(SAME, [0])
            assert caught.value.outcome == outcome


def test_a_value_that_is_another_one_when_asked_again_is_cheating(tmp_path: Path) -> None:
    with _timed(tmp_path, SCALED) as (_, profiler, expected):
        got = expected.reference[0].clone()
        got[1, 5] = 7.0
        profiler.sets.outputs[0][0].copy_(got)
        again: Any = AskedAgain(profiler, expected.reference[0])
        with pytest.raises(IncorrectOutput, match="than when asked again") as caught:
            profiler.outputs.check(again, [0])
        assert caught.value.outcome == "cheating"


def test_rounding_that_adds_up_is_wrong_and_no_cheating(tmp_path: Path) -> None:
    """Each value alone would pass, but all of them together do not."""
    with _timed(tmp_path, SCALED) as (_, profiler, expected):
        got = expected.reference[0].clone()
        got += 0.9e-4 * (got.square().mean().sqrt() + got.abs()) * torch.sign(got)
        profiler.sets.outputs[0][0].copy_(got)
        with pytest.raises(IncorrectOutput, match="more rounding than where it was verified") as caught:
            profiler.outputs.check(SAME, [0])
        assert caught.value.outcome == "incorrect"


def test_another_place_at_a_tie_is_wrong_and_no_cheating(tmp_path: Path) -> None:
    with _timed(tmp_path, PLACES) as (_, profiler, expected):
        got = expected.reference[0].clone()
        profiler.sets.outputs[0][0].copy_(got)
        profiler.outputs.check(SAME, [0])
        got[7] += 1
        profiler.sets.outputs[0][0].copy_(got)
        with pytest.raises(IncorrectOutput, match="at a tie, perhaps") as caught:
            profiler.outputs.check(SAME, [0])
        assert caught.value.outcome == "incorrect"
        got[:100] += 1
        profiler.sets.outputs[0][0].copy_(got)
        with pytest.raises(IncorrectOutput, match="other values while timed") as caught:
            profiler.outputs.check(SAME, [0])
        assert caught.value.outcome == "cheating"
