"""Times by line: the right lines, each with its kernels and its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.records import to_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.lines.line_profile import longest, profile_lines
from kernel_assistant.worker.measuring.roofline import Roofline
from kernel_assistant.worker.process.worker_errors import TaskError

TEXT = """\
import functools

import torch
from torch import nn


def doubled(function):
    @functools.wraps(function)
    def call(self, x):
        return 2 * function(self, x)

    return call


class Inner(nn.Module):
    def forward(self, x):
        return x.exp()


# kernel-assistant: inputs=(torch.randn(256, 512),)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.proj = nn.Linear(512, 512)
        self.seen = nn.Buffer(torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        y = torch.cat(
            [
                x,
                x,
            ],
        )
        for _ in range(3):
            y = self.inner(y)
        with torch.no_grad():
            y = self._helper(y)
        if y.shape[0] > 10_000:
            y = y + 1
        return self._scaled(y.mT.mT)

    def _helper(self, y):
        return self.proj(y) if y.dim() else y

    @doubled
    def _scaled(self, y):
        half = y.sigmoid() * y
        return half.sum()
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if text in line)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("lines") / "net.py"
    path.write_text(TEXT)
    task = to_builtins(build_task(str(path), target="cpu", numerics="kernelbench"))
    ceilings = Roofline(copy=1e9, read=1e9, cache_bytes=1 << 20, flops=1e9)
    found = profile_lines(task, "cpu", 0.2, ceilings)
    assert found["runs"] >= 3 and found["ms"] > 0 and found["workload"] == "default"
    return {row["line"]: row for row in found["lines"]}


def test_every_statement_that_ran_has_a_row(rows) -> None:
    texts = ["seen += 1", "torch.cat(", "for _ in", "y = self.inner", "with torch", "y = self._helper", "if y.shape"]
    texts += ["return self._scaled", "return self.proj", "half = ", "return half.sum"]
    assert sorted(rows) == sorted(line_of(text) for text in texts)
    assert rows[line_of("torch.cat(")]["end_line"] == line_of("torch.cat(") + 5
    assert rows[line_of("y = self.inner")]["calls"] == 3 and rows[line_of("torch.cat(")]["calls"] == 1
    assert rows[line_of("half = ")]["function"] == "_scaled"


def test_what_a_line_calls_is_in_its_time(rows) -> None:
    outer, inner = rows[line_of("y = self._helper")], rows[line_of("return self.proj")]
    assert outer["ms"] >= inner["ms"] > 0
    assert {kernel["name"] for kernel in outer["kernels"]} >= {"aten::addmm"}
    assert outer["flops"] == inner["flops"] == 2 * 512 * 512 * 512
    own = [row["share"] for row in rows.values() if row["function"] == "forward"]
    assert sum(own) == pytest.approx(1.0)


def test_a_line_is_never_less_than_the_operators_in_it(rows) -> None:
    for row in rows.values():
        assert sum(kernel["ms"] for kernel in row["kernels"]) <= row["ms"] * (1 + 1e-9)
    measured = {"aten::exp": [1.0, 3.0], "aten::mul": [2.0, 1.0]}
    serial, others = (longest(measured, 2.0, one_by_one=each) for each in (True, False))
    assert [(row["name"], row["ms"]) for row in serial] == [("aten::exp", 1500.0), ("aten::mul", 500.0)]
    assert [row["ms"] for row in others] == pytest.approx([2000.0, 2000.0 / 3])
    assert [row["ms"] for row in longest(measured, 9.0, one_by_one=True)] == [3000.0, 1000.0]
    assert longest({}, 1.0, one_by_one=True) == []


def test_products_are_held_against_the_rate_of_arithmetic(rows) -> None:
    inner = rows[line_of("return self.proj")]
    assert inner["roofline"] == pytest.approx(inner["flops"] / 1e9 / (inner["ms"] / 1e3))


def test_bytes_are_what_one_kernel_would_move(rows) -> None:
    values = 512 * 512 * 4
    half = rows[line_of("half = ")]
    assert (half["read_bytes"], half["written_bytes"]) == (values, values)  # the sigmoid is gone when the line ends
    assert half["roofline"] is not None and half["roofline"] > 0
    joined = rows[line_of("torch.cat(")]
    assert (joined["read_bytes"], joined["written_bytes"]) == (values // 2, values)
    total = rows[line_of("return half.sum")]
    assert (total["read_bytes"], total["written_bytes"]) == (values, 4)
    assert rows[line_of("seen += 1")]["roofline"] is None  # in the cache
    assert rows[line_of("if y.shape")]["read_bytes"] == 0


def test_forward_of_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    text = "import torch\nfrom torch import nn\n\n# kernel-assistant: inputs=(torch.ones(2),)\n"
    path.write_text(text + "class Net(nn.ReLU):\n    pass\n")
    task = to_builtins(build_task(str(path), target="cpu", numerics="kernelbench"))
    with pytest.raises(TaskError, match="inherited from another file"):
        profile_lines(task, "cpu", 0.1, Roofline())
