"""The second reference: PyTorch with convolutions in channels last, which may be less exact than eager mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_assistant.worker.judge import Judge
from kernel_assistant.worker.measuring.baselines import Baselines
from kernel_assistant.worker.opening import tensor_cores
from kernel_assistant.worker.opening.open_task import OpenTask
from kernel_assistant.worker.opening.tensor_cores import (
    ChannelsLastConvolutions,
    may_use_tensor_cores,
    products_in_tf32,
)
from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.numerics import is_as_inexact, less_exact
from kernel_assistant.worker.verifying.verification import IncorrectOutput, WorstErrors, check_outputs, expect
from tests.worker.opened import UNKNOWN, module_text, open_text

IMAGES = torch.randn(2, 8, 9, 7, generator=torch.Generator().manual_seed(0))
MODULES: list[tuple[nn.Module, torch.Tensor]] = [
    (nn.Conv2d(8, 6, 3, padding=1), IMAGES),
    (nn.Conv2d(8, 6, 3, groups=2), IMAGES.contiguous(memory_format=torch.channels_last)),
    (nn.ConvTranspose2d(8, 4, 3, stride=2), IMAGES),
    (nn.Conv3d(4, 6, 2), IMAGES.reshape(2, 4, 2, 9, 7)),
    (nn.Conv1d(8, 6, 3), IMAGES[..., 0]),
]
CONVOLUTION = module_text("return self.conv(x).relu()", "torch.randn(2, 8, 9, 7)", "self.conv = nn.Conv2d(8, 4, 3)")
STATEFUL = CONVOLUTION.replace(
    "nn.Conv2d(8, 4, 3)", 'nn.Conv2d(8, 4, 3)\n        self.register_buffer("calls", torch.zeros(()))'
).replace("return self.conv(x).relu()", "self.calls += 1\n        return self.conv(x).relu() * self.calls")


class SeenOrders(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Whether the operands of each convolution had channels last."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.last: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default and args[0].dim() == 4:
            self.last.append(all(one.is_contiguous(memory_format=torch.channels_last) for one in args[:2]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("pair", MODULES, ids=lambda pair: type(pair[0]).__name__)
def test_results_keep_their_values_and_their_order_of_memory(pair: tuple[nn.Module, torch.Tensor]) -> None:
    module, x = pair
    with torch.no_grad():
        plain = module(x)
        with SeenOrders() as seen, ChannelsLastConvolutions():  # type: ignore[no-untyped-call]
            turned = module(x)
    assert turned.stride() == plain.stride()
    assert torch.allclose(turned, plain, atol=1e-5)
    assert all(seen.last) and len(seen.last) == (x.dim() == 4)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Conv2d(8, 6, 3), True),
        (nn.Conv2d(8, 8, 3, groups=8), True),
        (nn.ConvTranspose2d(8, 4, 3), True),
        (nn.Conv2d(8, 6, 3, groups=2), False),
        (nn.ConvTranspose2d(8, 4, 3, groups=2), False),
        (nn.Linear(7, 3), False),
        (nn.Sequential(nn.Unflatten(1, (4, 2)), nn.Conv3d(4, 6, 2)), False),
        (nn.Conv2d(8, 6, 3).double(), False),
    ],
    ids=str,
)
def test_torch_compile_changes_the_order_of_convolutions_without_groups(
    module: nn.Module, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_cores, "tf32_flags", lambda: {"cudnn": True})
    program = torch.export.export(module, (IMAGES.to(next(module.parameters()).dtype),))
    assert may_use_tensor_cores(program, "cuda:0") is expected
    assert may_use_tensor_cores(program.run_decompositions(), "cuda:0") is expected
    assert not may_use_tensor_cores(program, "cpu")
    monkeypatch.setattr(tensor_cores, "tf32_flags", lambda: {"cudnn": False})
    assert not may_use_tensor_cores(program, "cuda:0")


def test_the_less_exact_result_is_the_reference() -> None:
    want = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    near, far = want.float() + 1e-6, want.float() + 1e-3
    assert less_exact(near, far, want) is far
    assert less_exact(far, near, want) is far
    assert less_exact(near, torch.full_like(near, torch.nan), want) is near
    indices = torch.tensor([1, 2, 3])
    assert less_exact(indices, indices + 1, indices) is indices
    assert is_as_inexact(far, far, want) and is_as_inexact(far, near, want) and not is_as_inexact(near, far, want)
    assert is_as_inexact(indices, indices + 1, indices)


def _rounded(task: OpenTask, args: Any, kwargs: Any) -> tuple[torch.Tensor, ...]:
    """TF32 has 10 bits of mantissa; here the rounded outputs take the place of a GPU's."""
    return tuple((one.view(torch.int32) & ~0x1FFF).view(torch.float32) for one in task.call(args, kwargs))


def test_a_candidate_may_be_as_inexact_as_torch_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = open_text(tmp_path, CONVOLUTION)
    monkeypatch.setattr(OpenTask, "on_tensor_cores", _rounded)
    case, plan = Case(0, "declared", None, 3), {"outputs": [{"name": "out0"}]}
    compiled, eager = expect(task, case, as_compiled=True), expect(task, case)
    assert compiled is not None and eager is not None
    got = list(_rounded(task, *task.unflatten(compiled.tensors)))
    errors = WorstErrors()
    check_outputs(plan, got, compiled, "strict", errors)
    assert errors.ratio == pytest.approx(1)
    with pytest.raises(IncorrectOutput):
        check_outputs(plan, got, eager, "strict", WorstErrors())
    with pytest.raises(IncorrectOutput):
        check_outputs(plan, [one * 1.01 for one in got], compiled, "strict", WorstErrors())


def test_outputs_without_a_convolution_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile is as inexact as expected in the first output and exact in the second, where eager mode is not."""
    text = CONVOLUTION.replace("self.conv(x).relu()", "(self.conv(x).relu(), x.exp())")
    task = open_text(tmp_path, text, numerics="strict")
    task.compiled_on_tensor_cores = True

    def first_rounded(task: OpenTask, args: Any, kwargs: Any) -> tuple[torch.Tensor, ...]:
        return (_rounded(task, args, kwargs)[0], task.call(args, kwargs)[1])

    monkeypatch.setattr(OpenTask, "on_tensor_cores", first_rounded)
    expected = expect(task, Case(0, "declared", None, 3), as_compiled=True)
    assert expected is not None
    sets: Any = SimpleNamespace(task=task, target="cpu")
    baselines = Baselines(sets, quick_only=False, nominal=True)
    args, kwargs = task.unflatten(expected.tensors)
    assert not torch.equal(expected.reference[1].double(), expected.want[1])
    for first, result in ((first_rounded(task, args, kwargs)[0], True), (task.call(args, kwargs)[0], False)):
        outputs = (first, expected.want[1].float())
        baselines._callables["compile"] = lambda x, outputs=outputs: outputs
        assert baselines.compiled_is_as_inexact(expected) is result


@pytest.fixture(params=[CONVOLUTION, STATEFUL], ids=["no state", "counts its calls"])
def judge(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    """A judge that expects torch.compile on tensor cores, where it is as exact as eager mode."""
    task = open_text(tmp_path, request.param, numerics="strict")
    task.compiled_on_tensor_cores = True
    monkeypatch.setattr(
        OpenTask,
        "on_tensor_cores",
        lambda task, args, kwargs: _rounded(task, args, kwargs) if task.compiled_on_tensor_cores else None,
    )
    command: Any = SimpleNamespace(target="cpu")
    runner: Any = SimpleNamespace(close=lambda: None)
    made = Judge(task, "strict", command, UNKNOWN, spare=runner, nominal=True)
    yield made
    made.close()


def test_what_is_as_exact_as_eager_mode_takes_the_wider_bounds_back(judge: Judge) -> None:
    """Also those of outputs while timed, and from the values with which every call begins."""
    loose = judge.profiler.outputs.own_errors[0]
    judge.prepare("compile")
    assert not judge.task.compiled_on_tensor_cores
    assert 100 * judge.profiler.outputs.own_errors[0] < loose


def test_tf32_is_allowed_within_the_block_alone() -> None:
    def settings() -> tuple[str, str]:
        return torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]

    before = settings()
    with products_in_tf32():
        assert settings() == ("tf32", "tf32")
    assert settings() == before
