"""Every reason of the filter is provoked by a real task, in a real probe in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_assistant.sandbox.choose import choose
from kernel_assistant_training.tasks.filter import Filter, Rules
from kernel_assistant_training.tasks.records import Reason, TaskText

RULES = Rules("cpu", window=(0.2, 100.0), compile="aot_eager", seconds=60.0, most_bytes=64 << 20)


def _task(body: str, *, operators: tuple[str, ...] = (), batch: str = "BATCH = 512", inputs: str = "") -> TaskText:
    text = f"""import os
import time

import torch
from torch import nn

{batch}


class Model(nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [{inputs or "torch.randn(BATCH, 257)"}]


def get_init_inputs():
    return []
"""
    return TaskText(number=1, source="composed", operators=operators, attribution=(), text=text)


@pytest.fixture(scope="module")
def keys() -> set[str]:
    return set()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, keys: set[str]) -> Iterator[Filter]:
    log = tmp_path_factory.mktemp("probe") / "probe.log"
    with Filter(RULES, choose("auto"), keys.__contains__, log) as found:
        yield found


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('no')", Reason.broken),
        ("return x + torch.empty(1 << 43)[0]", Reason.memory),
        ("return 3", Reason.no_tensor),
        ("return x.log()", Reason.not_finite),
        ("return x + torch.rand_like(x)", Reason.random),
        ("return torch.zeros_like(x) + x.relu() * 0", Reason.constant),
        ("return x * 0 + torch.arange(257.0)", Reason.same_output),
        ("return torch.tanh(x) if x.sum() > 0 else torch.sin(x)", Reason.no_graph),
        ("return x.transpose(0, 1).contiguous()", Reason.copy),
        ("return nn.functional.dropout(x, 0.5, self.training)", Reason.copy),
        ("time.sleep(0.15); return x.sinh()", Reason.too_slow),
        # The benchmark has this in its second level's operators, at all sizes.
        ("return x * torch.sigmoid(x)", Reason.kernelbench),
        ("return x.cos() * (3 if torch.compiler.is_dynamo_compiling() else 2)", Reason.compile),
        ("return torch.sin(x) * torch.cosh(x.clamp(-1, 1))", Reason.passed),
    ],
)
def test_a_reason(judge: Filter, body: str, reason: Reason) -> None:
    found = judge.judge(_task(body))
    assert found.reason is reason, found.message


def test_without_a_batch_size_nothing_is_fitted(judge: Filter) -> None:
    found = judge.judge(_task("return x.asinh()", batch="", inputs="torch.randn(3, 3)"))
    assert found.reason is Reason.too_fast


def test_a_key_that_was_kept_is_a_duplicate(judge: Filter, keys: set[str]) -> None:
    first = judge.judge(_task("return x.erf() * x.sinh()"))
    assert first.reason is Reason.passed and first.graph is not None and 0.2 <= first.eager_ms <= 100
    keys.add(first.key)
    again = judge.judge(_task("return x.erf() * x.sinh()", inputs="torch.randn(BATCH, 300)"))
    assert (again.reason, again.key) == (Reason.duplicate, first.key)


def test_declared_operators_are_those_that_the_output_depends_on(judge: Filter) -> None:
    both = ("torch.Tensor.acosh", "torch.nn.functional.softplus")
    used = judge.judge(_task("return nn.functional.softplus(x.abs() + 1).add(1).acosh()", operators=both))
    assert used.reason is Reason.passed
    unread = "y = nn.functional.softplus(x); return (x.abs() + 2).acosh()"
    found = judge.judge(_task(unread, operators=both))
    assert (found.reason, found.message) == (Reason.unused_operator, "torch.nn.functional.softplus")


def test_a_crash_and_a_lie_cost_one_task(judge: Filter) -> None:
    assert judge.judge(_task("os.abort()")).reason is Reason.crashed
    lie = "[os.write(fd, b'nonsense\\n') for fd in range(3, 9) if os.path.exists(f'/proc/self/fd/{fd}')]; return x"
    assert judge.judge(_task(lie)).reason in (Reason.crashed, Reason.broken)
    assert judge.judge(_task("return x.sin() + x.erf()")).reason is Reason.passed


def test_what_does_not_end_is_late(tmp_path: Path) -> None:
    rules = replace(RULES, seconds=1.0)
    with Filter(rules, choose("auto"), lambda key: False, tmp_path / "probe.log") as judge:
        assert judge.judge(_task("time.sleep(600)")).reason is Reason.late
