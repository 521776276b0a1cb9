"""Every reason of the filter is caused by a real task, in a real probe in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_assistant.sandbox.choose import choose
from kernel_assistant_training.tasks.filter import Filter
from kernel_assistant_training.tasks.records import Reason, Rules, TaskText

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


@pytest.mark.programs
@pytest.mark.slow
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


def test_there_is_a_user_although_the_sandbox_has_no_list_of_them(judge: Filter) -> None:
    """torch 2.11 asks for the user's name when its compiler is imported: without an answer no task has a graph."""
    inputs = "(__import__('getpass').getuser(), torch.randn(BATCH, 257))[1]"
    found = judge.judge(_task("return x.asinh() * x.cosh()", inputs=inputs))
    assert found.reason is Reason.passed, found.message


def test_what_is_finite_for_the_first_batch_alone_is_not_finite(judge: Filter) -> None:
    found = judge.judge(
        _task("return torch.where(x[:1] * 0 + x.shape[0] > 8, x * torch.inf, x.sin())", batch="BATCH = 8")
    )
    assert found.reason is Reason.not_finite and "BATCH = 8\n" not in found.text
    assert set(found.spent) >= {"build", "values", "fit", "graph"}


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


@pytest.mark.programs
@pytest.mark.slow
def test_a_crash_and_a_lie_cost_one_task(judge: Filter) -> None:
    assert judge.judge(_task("os.abort()")).reason is Reason.crashed
    lie = "[os.write(fd, b'nonsense\\n') for fd in range(3, 9) if os.path.exists(f'/proc/self/fd/{fd}')]; return x"
    assert judge.judge(_task(lie)).reason in (Reason.crashed, Reason.broken)
    assert judge.judge(_task("return x.sin() + x.erf()")).reason is Reason.passed


@pytest.mark.programs
@pytest.mark.slow
def test_a_probe_that_lost_its_gpu_judges_no_other_task(judge: Filter) -> None:
    # What a kernel's failed assertion leaves behind, in a module of the process: everything fails from then on.
    lost = "torch.lost = True; raise torch.AcceleratorError('CUDA error: device-side assert triggered')"
    assert judge.judge(_task(lost)).reason is Reason.broken
    after = "assert not hasattr(torch, 'lost'); return x.sin() + x.erf()"
    assert judge.judge(_task(after)).reason is Reason.passed


@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        # Digests are taken where the text cannot reach them.
        "from kernel_assistant_training.synth import digests; digests.Benchmark.repeats = lambda *a: False",
        # The word of the request, found in the frame that read it: nothing passes before its turn.
        "said('reason')",
        # With a time that was not there.
        "said('timed')",
    ],
)
def test_what_a_text_says_in_the_name_of_the_probe_does_not_count(judge: Filter, lie: str) -> None:
    text = _task("return x * torch.sigmoid(x)").text + FORGER.replace("LIE", lie)
    verdict = judge.judge(TaskText(number=1, source="composed", operators=(), attribution=(), text=text))
    assert verdict.reason in (Reason.kernelbench, Reason.crashed), verdict.message
    assert judge.judge(_task("return x.cos() + x.erf()")).reason in (Reason.passed, Reason.duplicate)


def test_the_text_that_is_kept_is_the_one_that_was_asked(judge: Filter) -> None:
    lie = "names['running'].text = 'BATCH = 4000' + chr(10) + 'import nothing'"
    asked = _task("return x.atan() + x.erf()", batch="BATCH = 8192").text + FORGER.replace("LIE", lie)
    verdict = judge.judge(TaskText(number=1, source="composed", operators=(), attribution=(), text=asked))
    assert verdict.text == asked.replace("BATCH = 8192", "BATCH = 4000")


#: Runs when the inputs are made: the probe's frames are above it.
FORGER = """

def get_inputs():
    import json, sys
    frame, names = sys._getframe(), {}
    while frame is not None:
        names = {**frame.f_locals, **names}
        frame = frame.f_back
    say, word = names["answers"], names["word"]["word"]

    def said(kind):
        forged = {"reason": {"reason": "passed"}, "timed": {"timed": 50.0, "batch": 512}}
        lines = [{"times": True}, forged["timed"]] if kind == "timed" else [forged[kind]]
        for line in lines:
            say.write(json.dumps({**line, "word": word}) + chr(10))
        say.flush()

    LIE
    return [torch.randn(BATCH, 257)]
"""


@pytest.mark.programs
@pytest.mark.slow
def test_what_does_not_end_is_late(tmp_path: Path) -> None:
    rules = replace(RULES, seconds=1.0)
    with Filter(rules, choose("auto"), lambda key: False, tmp_path / "probe.log") as judge:
        assert judge.judge(_task("time.sleep(600)")).reason is Reason.late
