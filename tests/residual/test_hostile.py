"""Tests the defences besides the screen: against kernels that let PyTorch do their work, and plans with forbidden
calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.environment import session
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Candidate, Outcome, Tier
from tests.hostile.plan_attacks import PYTHON, SYSTEM
from tests.judge import kernels
from tests.residual.modules import LINEAR

#: Lets PyTorch compute in a process of which the kernel is a part; dies if it could not.
BORROWED = 'python("import torch\\ntorch.rand(8, 8) @ torch.rand(8, 8)");'


@pytest.fixture(scope="module")
def linear(worker: WorkerClient, cache: Path) -> Iterator[Environment]:
    with kernels.environment(worker, cache, kernels.task(LINEAR, "Linear")) as opened:
        yield opened


@pytest.fixture
def unscreened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "screen", lambda candidate, graph: ())


def _candidate(environment: Environment) -> Candidate:
    return emit(environment.graph, initial(environment.graph, "cpu", environment.device)[0])


@pytest.mark.usefixtures("unscreened")
def test_a_kernel_that_asks_pytorch_is_found(linear: Environment) -> None:
    honest = _candidate(linear)
    (launch,) = [launch for launch in honest.plan.launches if launch.symbol.endswith("_rows")]
    text = honest.sources["kernel.cpp"]
    head, found, rest = text.partition(f'extern "C" void {launch.symbol}(')
    assert found
    signature, brace, body = rest.partition("{")
    changed = f"{SYSTEM}{head}{PYTHON}{found}{signature}{brace} {BORROWED}{body}"
    borrowed = msgspec.structs.replace(honest, sources={**honest.sources, "kernel.cpp": changed})
    mine, theirs = linear.evaluate([honest, borrowed], Tier.quick)
    assert mine.outcome is Outcome.correct, mine.message
    assert theirs.outcome is Outcome.cheating, theirs.message
    assert "PyTorch computes inside a kernel" in theirs.message and "aten." in theirs.message


@pytest.mark.usefixtures("unscreened")
def test_a_foreign_call_is_refused_whatever_the_screen_says(linear: Environment) -> None:
    honest = _candidate(linear)
    launch = honest.plan.launches[0]
    assert launch.call is not None
    node = msgspec.structs.replace(launch.call.call, op="bilinear")
    call = msgspec.structs.replace(launch.call, nodes=(node,))
    launches = (msgspec.structs.replace(launch, call=call), *honest.plan.launches[1:])
    foreign = msgspec.structs.replace(honest, plan=msgspec.structs.replace(honest.plan, launches=launches))
    (evaluation,) = linear.evaluate([foreign], Tier.quick)
    assert evaluation.outcome is Outcome.refused
    assert "bilinear (n0) is not what the module calls" in evaluation.message


def test_a_call_with_operands_of_another_shape_ends_as_a_crash(linear: Environment) -> None:
    """PyTorch reports a buffer that a plan declares too small; no memory after its end is read."""
    honest = _candidate(linear)
    small = tuple(
        msgspec.structs.replace(spec, shape=("1",)) if spec.name == "between0" else spec for spec in honest.plan.scratch
    )
    broken = msgspec.structs.replace(honest, plan=msgspec.structs.replace(honest.plan, scratch=small))
    (evaluation,) = linear.evaluate([broken], Tier.quick)
    assert evaluation.outcome is Outcome.crashed
