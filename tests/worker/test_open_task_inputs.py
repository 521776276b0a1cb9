from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_assistant.worker.process.memory import available_bytes, require_bytes
from kernel_assistant.worker.process.worker_errors import TaskError
from kernel_assistant.worker.user_module.inputs import VARIANTS, fill, resize
from kernel_assistant.worker.user_module.recorded import drawn

LAYOUTS = {
    "contiguous": torch.randn(6, 5),
    "transposed": torch.randn(5, 6).t(),
    "every second": torch.randn(6, 10)[:, ::2],
    "expanded": torch.randn(6, 1).expand(6, 5),
    "half": torch.randn(6, 5).half(),
    "bfloat16": torch.randn(6, 5).bfloat16(),
    "scalar": torch.tensor(3.0),
    "empty": torch.randn(0, 5),
}


@pytest.mark.parametrize("tensor", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_keep_the_layout(tensor: torch.Tensor, variant: str) -> None:
    filled = fill(tensor, variant, 3)
    assert (filled.shape, filled.dtype, filled.stride()) == (tensor.shape, tensor.dtype, tensor.stride())
    assert torch.equal(filled, fill(tensor, variant, 3))
    if variant in ("zeros", "ones"):
        assert torch.equal(filled, torch.full_like(tensor, float(variant == "ones")))


def test_variants_have_their_distribution() -> None:
    for variant, (mean, deviation) in {"normal": (0, 1), "x10": (0, 10), "shifted": (5, 1)}.items():
        value = fill(torch.zeros(200, 200), variant, 1)
        assert (float(value.mean()), float(value.std())) == pytest.approx((mean, deviation), abs=0.03 * deviation)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_other_tensors_stay(dtype: torch.dtype) -> None:
    tensor = torch.randint(0, 2, (4,)).to(dtype)
    assert all(fill(tensor, variant, 1) is tensor for variant in VARIANTS)


def spec(*shape: str, strides: Any = None) -> dict[str, Any]:
    return {"dtype": "f32", "shape": list(shape), "strides": strides}


@given(st.integers(2, 6), st.integers(1, 20), st.integers(0, 1000))
def test_resized_rows(rows: int, wanted: int, seed: int) -> None:
    tensor = torch.rand(rows, 8).softmax(-1)
    resized = resize(tensor, spec("B", "8"), {"B": wanted}, seed)
    kept = min(rows, wanted)
    assert resized.shape == (wanted, 8) and torch.equal(resized[:kept], tensor[:kept])
    assert bool((resized >= 0).all())
    torch.testing.assert_close(resized.sum(-1), torch.ones(wanted))
    assert len({tuple(row.tolist()) for row in resized}) == wanted, "no row is a copy"


def test_resized_masks_integers_and_single_rows() -> None:
    mask = torch.full((4, 4), float("-inf")).triu(1).expand(3, 4, 4)
    grown = resize(mask, spec("B", "4", "4"), {"B": 7}, 0)
    assert torch.equal(grown, mask[:1].expand(7, 4, 4))
    numbers = torch.tensor([3, 1, 2])
    assert resize(numbers, spec("B"), {"B": 7}, 0).tolist() == [3, 1, 2, 3, 1, 2, 3]
    assert resize(torch.ones(1, 2), spec("B", "2"), {"B": 3}, 0).tolist() == [[1, 1]] * 3


def test_resized_strides_follow_the_spec() -> None:
    tensor = torch.randn(16, 8).t()
    resized = resize(tensor, spec("B", "16", strides=["1", "B"]), {"B": 12}, 0)
    assert resized.shape == (12, 16) and resized.stride() == (1, 12)
    assert torch.equal(resized[:8], tensor)
    assert resize(tensor, spec("B", "16", strides=["1", "B"]), {"B": 8}, 0) is tensor


def test_memory_is_refused_before_it_is_taken() -> None:
    free = available_bytes("cpu")
    assert free > 2**20
    require_bytes(2**20, "cpu", "a little")
    with pytest.raises(TaskError, match=r"^a lot needs .* GiB are available on cpu$") as caught:
        require_bytes(4 * free, "cpu", "a lot")
    assert caught.value.kind == "out_of_memory"


def test_what_a_recording_keeps_as_statistics_is_drawn_on_the_device() -> None:
    kept = {"dtype": "bfloat16", "shape": [64, 32], "strides": [1, 64], "mean": 3.0, "deviation": 2.0}
    described: dict[str, Any] = {**kept, "lowest": 0.5, "highest": 4.0}
    values = drawn(described)
    assert (values.shape, values.stride(), values.dtype) == ((64, 32), (1, 64), torch.bfloat16)
    assert (float(values.min()), float(values.max())) == (0.5, 4.0) and values.unique().numel() > 100
    with torch.device("meta"):
        assert drawn(described).device.type == "meta"
        assert drawn({**kept, "dtype": "int64", "lowest": 1, "highest": 7}).device.type == "meta"
