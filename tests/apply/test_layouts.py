"""Layouts of tensors, by which a guard finds its launcher."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernel_assistant.worker.applied.layouts import MOST, MOST_STORED, LaunchersByLayout, ParameterLayouts


def _changed(how: str, value: nn.Parameter) -> None:
    if how == "dtype":
        value.data = value.data.double()
    elif how == "strides":
        value.data = value.data.t().contiguous().t()
    elif how == "sizes":
        value.data = value.data[:2]
    else:
        value.requires_grad_(not value.requires_grad)


@pytest.mark.parametrize("how", ["dtype", "strides", "sizes", "gradient"])
def test_a_parameter_with_another_layout_gives_another_key(how: str) -> None:
    layouts, values = ParameterLayouts(), [nn.Parameter(torch.randn(4, 6)), torch.randn(3)]
    first = layouts.of(values)
    assert first is not None
    assert first.requires_grad
    assert layouts.of(values) is first
    _changed(how, values[0])  # type: ignore[arg-type]
    second = layouts.of(values)
    assert second is not None
    assert (second == first, second.requires_grad) == ((True, False) if how == "gradient" else (False, True))
    assert layouts.of(values) is second


def test_layouts_of_equal_instances_are_equal() -> None:
    one, other = (ParameterLayouts().of([torch.randn(4, 6), torch.randn(3)]) for _ in range(2))
    assert one is not other
    assert (one, hash(one)) == (other, hash(other))


def test_layouts_of_tied_parameters_and_in_inference_mode() -> None:
    value = nn.Parameter(torch.randn(4))
    layouts = ParameterLayouts()
    tied = layouts.of([value, value])
    assert tied is not None
    assert tied == layouts.of([value, value])
    with torch.inference_mode():
        inside = layouts.of([value])
        assert inside is not None
        assert layouts.of([value]) is inside
    assert layouts.of([value]) == inside


def test_tensors_of_other_classes_have_no_layout() -> None:
    class Own(torch.Tensor):
        pass

    assert ParameterLayouts().of([torch.randn(2).as_subclass(Own)]) is None
    assert ParameterLayouts().of([torch.eye(2).to_sparse()]) is None


Values = tuple[object, ...]


def _own_class(value: torch.Tensor) -> torch.Tensor:
    class Own(torch.Tensor):
        pass

    return value.as_subclass(Own)


@pytest.mark.parametrize(
    "changed",
    [
        lambda x, w: (x[:2], w),
        lambda x, w: (x.double(), w),
        lambda x, w: (x.t().contiguous().t(), w),
        lambda x, w: (x.to_sparse(), w),
        lambda x, w: (_own_class(x), w),
        lambda x, w: (3.0, w),
        lambda x, w: (w, x),
        lambda x, w: (torch.complex(x, x).conj(), w),
    ],
    ids=["sizes", "dtype", "strides", "sparse", "class", "no tensor", "order", "conjugated"],
)
def test_another_layout_has_no_launcher(changed: Callable[[torch.Tensor, nn.Parameter], Values]) -> None:
    x, weight = torch.randn(4, 6), nn.Parameter(torch.randn(4, 6), requires_grad=False)
    launchers: LaunchersByLayout[str] = LaunchersByLayout()
    launchers.store((x, weight), "first")
    assert launchers.find((torch.randn(4, 6), weight)) == "first"
    assert launchers.find(changed(x, weight)) is None


def test_a_launcher_stored_without_gradients_is_not_found_with_them() -> None:
    x, weight = torch.randn(4, 6), nn.Parameter(torch.randn(4, 6))
    launchers: LaunchersByLayout[str] = LaunchersByLayout()
    with torch.no_grad():
        launchers.store((x, weight), "first")
        assert launchers.find((x, weight)) == "first"
    assert launchers.find((x, weight)) is None
    launchers.store((x, weight.detach()), "recorded")
    assert launchers.find((x, weight.detach())) == "recorded"
    assert launchers.find((torch.randn(4, 6, requires_grad=True), weight.detach())) is None


def test_the_newest_launchers_are_kept_until_too_many_came() -> None:
    launchers: LaunchersByLayout[int] = LaunchersByLayout()
    sizes = [torch.zeros(size) for size in range(1, 2 * MOST_STORED + 2)]

    def known() -> list[int]:
        return [number for number, value in enumerate(sizes) if launchers.find([value]) == number]

    for number, value in enumerate(sizes):
        launchers.store([value], number)
    often, last = list(range(MOST_STORED - MOST + 1, MOST_STORED)), 2 * MOST_STORED - 1
    assert known() == [*often, last]
    launchers.clear()
    assert known() == []
    launchers.store([sizes[0]], 0)
    assert known() == [0]


def test_tensors_that_are_there_twice_have_no_launcher() -> None:
    launchers: LaunchersByLayout[str] = LaunchersByLayout()
    x = torch.randn(3)
    launchers.store([x, x], "tied")
    assert launchers.find([x, x]) is None
    assert launchers.find([x, torch.randn(3)]) is None
