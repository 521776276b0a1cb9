"""Outputs are compared while timed as when verified: the same values pass, for every part that is compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.records import Numerics
from kernel_assistant.worker.measuring import timed_outputs
from kernel_assistant.worker.measuring.profiling import Profiler
from kernel_assistant.worker.measuring.timed_outputs import few_places
from kernel_assistant.worker.verifying.verification import ExpectedOutputs, IncorrectOutput, WorstErrors, check_outputs
from tests.worker.opened import UNKNOWN, declared, module_text, open_text, profiling

SIZE = 1 << 16
#: Large values in front, small ones behind.
SCALED = module_text(
    "return x * self.scale",
    f"torch.randn(2, {SIZE})",
    f'self.register_buffer("scale", torch.cat([torch.ones({SIZE // 2}), torch.full(({SIZE // 2},), 1e-7)]))',
)
#: A remainder jumps where the product comes upon an integer: in float32 at other places than in float64, some of many.
JUMPING = module_text("return torch.frac(x * 4000.0)", f"torch.rand(64, {SIZE // 8})")
PLACES = module_text("return x.argmax(1)", f"torch.rand({SIZE}, 8)")


class AskedAgain:
    """A candidate that is asked once more: it writes `value` into its first output, or leaves what is there."""

    def __init__(self, profiler: Profiler | None = None, value: torch.Tensor | None = None) -> None:
        self._profiler, self._value = profiler, value

    def both(self, first: int, count: int) -> tuple[float, float]:
        if self._profiler is not None and self._value is not None:
            self._profiler.sets.outputs[first][0].copy_(self._value)
        return 1e-3 * count, 0.0


SAME: Any = AskedAgain()


@contextmanager
def _timed(folder: Path, text: str, numerics: str = "kernelbench") -> Iterator[tuple[Profiler, ExpectedOutputs]]:
    """Returns a profiler, and the expected outputs of its first set."""
    task = open_text(folder, text, numerics=numerics)
    base = declared(task)
    with profiling(task, UNKNOWN, numerics=numerics) as made:
        tensors = [tensor.clone() for tensor in made.sets.inputs[0]]
        args, kwargs = task.unflatten(tensors)
        outputs = list(task.call(args, kwargs)), list(task.call64(args, kwargs))
        yield made, ExpectedOutputs(base.case, tensors, *outputs, base.dims, base.constants)


def _checked(profiler: Profiler, got: torch.Tensor) -> None:
    """Checks `got` as the outputs of the first set."""
    profiler.sets.outputs[0][0].copy_(got)
    profiler.outputs.check(SAME, [0])


def _refused(profiler: Profiler, got: torch.Tensor, said: str, asked: Any = SAME) -> str:
    """The outcome for `got` as the outputs of the first set, whose reason has the words `said`."""
    profiler.sets.outputs[0][0].copy_(got)
    with pytest.raises(IncorrectOutput, match=said) as caught:
        profiler.outputs.check(asked, [0])
    return caught.value.outcome


def _verified(expected: ExpectedOutputs, got: torch.Tensor, numerics: str = "kernelbench") -> None:
    check_outputs({"outputs": [{"name": "out0"}]}, [got], expected, numerics, WorstErrors())


def test_small_values_are_held_against_the_whole_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _timed(tmp_path, SCALED) as (profiler, expected):
        got = expected.reference[0].clone()
        got[1, -100:] += 1e-6
        _verified(expected, got)
        monkeypatch.setattr(timed_outputs, "_window", lambda output: (output.numel() - 100, output.numel()))
        _checked(profiler, got)
        got[1, -100:] += 1e-3
        _refused(profiler, got, "other values while timed")


def test_a_jump_is_excused_by_those_that_pytorch_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _timed(tmp_path, JUMPING) as (profiler, expected):
        reference, want = expected.reference[0], expected.want[0]
        assert ((reference - want).abs() > 0.5).sum() > 1
        # On the declared inputs there were none by luck.
        profiler.outputs.own_errors = [0.0]
        got = reference.clone().reshape(-1)
        place = int(torch.where((reference - want).abs() > 0.5, 0.5, want).reshape(-1)[1000:-1000].argmax()) + 1000
        got[place] -= 1
        _verified(expected, got.reshape(reference.shape))
        monkeypatch.setattr(timed_outputs, "_window", lambda _: (place - 4, place + 4))
        _checked(profiler, got.reshape(reference.shape))


@pytest.mark.parametrize("numerics", [one.value for one in Numerics])
def test_the_tolerance_is_the_task_s_and_not_less(numerics: str, tmp_path: Path) -> None:
    off = {"paper": 5e-3, "kernelbench": 5e-5, "strict": 1e-7}[numerics]
    with _timed(tmp_path, SCALED, numerics) as (profiler, expected):
        got = expected.reference[0] * (1 + off)
        _verified(expected, got, numerics)
        _checked(profiler, got)
        _refused(profiler, got * 1.05, "other values while timed")


def test_few_places_are_few_of_many() -> None:
    assert few_places(1, 20) and few_places(8, 1000) and few_places(100, 10**6)
    assert not few_places(9, 1000) and not few_places(101, 10**6)
    # All of a loss, and half of a pair.
    assert not few_places(1, 1) and not few_places(1, 2) and not few_places(2, 31)


@pytest.mark.parametrize(
    ("count", "outcome", "said"), [(3, "incorrect", "at a jump, perhaps"), (SIZE // 4, "cheating", "other values")]
)
def test_another_value_at_a_jump_is_wrong_and_no_cheating(tmp_path: Path, count: int, outcome: str, said: str) -> None:
    with _timed(tmp_path, SCALED) as (profiler, expected):
        got = expected.reference[0].clone()
        got[1, :count] += 5.0
        assert _refused(profiler, got, said) == outcome


def test_a_value_that_is_another_one_when_asked_again_is_cheating(tmp_path: Path) -> None:
    with _timed(tmp_path, SCALED) as (profiler, expected):
        got = expected.reference[0].clone()
        got[1, 5] = 7.0
        again = AskedAgain(profiler, expected.reference[0])
        assert _refused(profiler, got, "than when asked again", again) == "cheating"


def test_rounding_that_adds_up_is_wrong_and_no_cheating(tmp_path: Path) -> None:
    """Each value alone would pass, but all of them together do not."""
    with _timed(tmp_path, SCALED) as (profiler, expected):
        got = expected.reference[0].clone()
        got += 0.9e-4 * (got.square().mean().sqrt() + got.abs()) * torch.sign(got)
        assert _refused(profiler, got, "more rounding than where it was verified") == "incorrect"


def test_another_place_at_a_tie_is_wrong_and_no_cheating(tmp_path: Path) -> None:
    with _timed(tmp_path, PLACES) as (profiler, expected):
        got = expected.reference[0].clone()
        _checked(profiler, got)
        got[7] += 1
        assert _refused(profiler, got, "at a tie, perhaps") == "incorrect"
        got[:100] += 1
        assert _refused(profiler, got, "other values while timed") == "cheating"
