"""The smallest number of operations of a call, and its time at a device's rate."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernel_assistant.worker.measuring.arithmetic import WINOGRAD, counted
from kernel_assistant.worker.measuring.calibrate import product_rate
from kernel_assistant.worker.measuring.roofline import Roofline, floor_seconds

X = torch.randn(16, 32)


def test_products_and_convolutions_in_float32_count() -> None:
    linear = nn.Linear(32, 64)
    assert counted(lambda: linear(X).relu()) == 2 * 16 * 32 * 64
    half = nn.Linear(32, 64).bfloat16()
    assert counted(lambda: half(X.bfloat16())) == 0
    image, convolution = torch.randn(1, 3, 8, 8), nn.Conv2d(3, 4, 3, bias=False)
    assert counted(lambda: convolution(image)) == 2 * 36 * 4 * 27 // WINOGRAD
    assert counted(X.exp) == 0


def test_the_floor_is_the_longer_of_moving_and_computing() -> None:
    ceilings = Roofline(copy=1e9, read=1e9, flops=1e10)
    assert floor_seconds(10**6, 10**6, ceilings) == pytest.approx(2e-3)
    assert floor_seconds(10**6, 10**6, ceilings, 10**9) == pytest.approx(0.1)
    assert floor_seconds(10**6, 10**6, Roofline(copy=1e9, read=1e9), 10**9) == pytest.approx(2e-3)
    assert floor_seconds(10**6, 10**6, Roofline(flops=1e10), 10**9) == pytest.approx(0.1)


def test_a_processor_has_a_rate() -> None:
    assert product_rate() > 1e8
