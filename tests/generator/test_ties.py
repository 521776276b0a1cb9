"""Which of equal values is chosen: the first, as PyTorch documents it (the last by cummax and cummin), in every type,
with zeros of both signs, infinities and NaN.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.ir.schedule import read_schedule
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Function, built_on_cpu, export

SETTINGS = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
FLOATS = [0.0, -0.0, 1.0, -1.0, 2.5, float("inf"), float("-inf"), float("nan")]
VALUES = {
    torch.float32: FLOATS,
    torch.bfloat16: FLOATS,
    torch.float64: FLOATS,
    torch.int64: [0, 1, -1, 2**62, -(2**63), 2**63 - 1],
    torch.int32: [0, 1, -1, 2**31 - 1, -(2**31)],
    torch.uint8: [0, 1, 128, 255],
}
ROWS, COLUMNS = 5, 37


def _along(dim: int) -> Function:
    return Function(lambda x: (x.argmax(dim), x.argmin(dim), x.max(dim).indices, x.min(dim).indices))


def _running(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.cummax(-1).indices, x.cummin(-1).indices


MODULES = {"rows": _along(-1), "columns": _along(0), "running": Function(_running)}
#: Module, type and schedule; None for the first on the CPU.
CASES = [
    *(("rows", dtype, None) for dtype in VALUES),
    ("columns", torch.float32, None),
    ("columns", torch.int64, None),
    ("running", torch.float32, None),
    ("rows", torch.float32, "rows/warp lanes=32 items=1 vec=2"),
    ("rows", torch.float64, "rows/stream block=32"),
    ("columns", torch.bfloat16, "cols/stream tx=16 ty=2"),
    ("rows", torch.int32, "rows/reg block=32 vec=2"),
    ("rows", torch.int64, "rows/split parts=3 block=32"),
    ("running", torch.float32, "scan/rows block=32"),
]


class Compared:
    """A compiled candidate that is compared with PyTorch on drawn values."""

    def __init__(self, name: str, dtype: torch.dtype, line: str | None, folder: Path) -> None:
        self.model, self.values = MODULES[name], VALUES[dtype]
        self.dtype = dtype
        graph = export(self.model, torch.zeros(ROWS, COLUMNS, dtype=dtype))
        self.built = OnHost(graph, read_schedule("cuda", line), folder) if line else built_on_cpu(graph, folder)

    def check(self, chosen: list[int], repeats: int) -> None:
        """Compares on rows of the chosen values, each `repeats` times in a row."""
        drawn = [self.values[one % len(self.values)] for one in chosen for _ in range(repeats)]
        flat = torch.tensor((drawn * ROWS * COLUMNS)[: ROWS * COLUMNS], dtype=self.dtype)
        x = flat.reshape(ROWS, COLUMNS)
        for mine, theirs in zip(self.built({"x0": x}), self.model(x), strict=True):
            assert torch.equal(mine, theirs), (x, mine, theirs)


@pytest.fixture(params=CASES, ids=lambda case: " ".join(map(str, case)))
def compared(request: pytest.FixtureRequest, tmp_path: Path) -> Compared:
    return Compared(*request.param, tmp_path)


@SETTINGS
@given(chosen=st.lists(st.integers(0, 7), min_size=1, max_size=40), repeats=st.integers(1, 20))
def test_the_first_of_equal_values(compared: Compared, chosen: list[int], repeats: int) -> None:
    compared.check(chosen, repeats)
