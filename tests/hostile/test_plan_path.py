"""Every exploit of the public table that a plan's C++ can take, with the screen and without it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment import session
from kernel_assistant.environment.screen import screen
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.records import (
    BufferSpec,
    Candidate,
    Evaluation,
    InputSource,
    KernelTask,
    Launch,
    Outcome,
    Plan,
    Tier,
    Workload,
)
from kernel_assistant.targets.base import DeviceFacts
from tests.hostile.plan_attacks import FULL, HARMLESS, HONEST, QUICK

MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(4096) + 0.5)

    def forward(self, x):
        return torch.softmax(x * self.w, -1)

def get_inputs():
    return [torch.randn(32, 4096)]
"""


@pytest.fixture(scope="module")
def environment(
    worker: Worker, device: DeviceFacts, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    path = tmp_path_factory.mktemp("plan") / "softmax.py"
    path.write_text(MODULE)
    task = KernelTask(
        path=str(path), content=MODULE, class_name="Model", source=InputSource.get_inputs, workloads=(Workload(),)
    )
    with open_environment(
        task,
        device=device,
        worker=worker,
        sandbox_mode="auto",
        cache_dir=cache_dir,
        cancel=threading.Event(),
        emit=lambda event: None,
    ) as opened:
        yield opened


def candidate(environment: Environment, text: str) -> Candidate:
    weight = next(value.name for value in environment.graph.inputs if value.kind == "param")
    shape = environment.graph.spec("x0").shape
    plan = Plan(
        target="cpu",
        dims=tuple(environment.graph.dims),
        inputs=(
            BufferSpec(name="x0", dtype="f32", shape=shape),
            BufferSpec(name=weight, dtype="f32", shape=("4096",)),
        ),
        outputs=(BufferSpec(name="out", dtype="f32", shape=shape),),
        launches=(
            Launch(
                symbol="softmax",
                args=(("x", "x0"), ("w", weight), ("out", "out"), ("rows", shape[0]), ("n", "4096")),
            ),
        ),
    )
    return Candidate(plan=plan, sources={"softmax.cpp": text})


@pytest.fixture
def unscreened(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind the screen has to hold alone."""
    monkeypatch.setattr(session, "screen", lambda candidate, graph: ())


@pytest.fixture(scope="module")
def honest(environment: Environment) -> dict[Tier, Evaluation]:
    """The kernel that every attack is made from."""
    return {tier: environment.evaluate([candidate(environment, HONEST)], tier)[0] for tier in (Tier.quick, Tier.full)}


@pytest.mark.parametrize("tier", [Tier.quick, Tier.full])
def test_honest_kernel_is_correct(honest: dict[Tier, Evaluation], tier: Tier) -> None:
    assert honest[tier].outcome is Outcome.correct, honest[tier].message
    assert honest[tier].timing is not None


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", QUICK)
def test_attack_is_not_correct(environment: Environment, honest: dict[Tier, Evaluation], name: str) -> None:
    text, outcomes = QUICK[name]
    evaluation = environment.evaluate([candidate(environment, text)], Tier.quick)[0]
    assert honest[Tier.quick].correct
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", FULL)
def test_attack_is_not_correct_in_full(environment: Environment, honest: dict[Tier, Evaluation], name: str) -> None:
    text, outcomes = FULL[name]
    evaluation = environment.evaluate([candidate(environment, text)], Tier.full)[0]
    assert honest[Tier.full].correct
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", HARMLESS)
def test_attack_never_gains_time(environment: Environment, name: str) -> None:
    evaluation = environment.evaluate([candidate(environment, HARMLESS[name])], Tier.full)[0]
    assert evaluation.outcome is Outcome.correct, evaluation.message


@pytest.mark.usefixtures("unscreened")
def test_judge_survives_and_judges_on(environment: Environment, worker: Worker) -> None:
    pid = worker.process.pid
    for name in ("kills everybody", "segfaults"):
        environment.evaluate([candidate(environment, QUICK[name][0])], Tier.quick)
    after = environment.evaluate([candidate(environment, HONEST)], Tier.quick)[0]
    assert after.correct, after.message
    assert worker.process.pid == pid and os.path.exists(f"/proc/{pid}")


SCREENED = (
    "makes its input writable",
    "thread finishes later",
    "forged answer at load",
    "runner patched to do nothing",
    "forks",
    "clones",
    "reads its parent's memory",
    "reads a file while compiling",
    "assembles a file",
)


@pytest.mark.parametrize("name", SCREENED)
def test_screen_says_so_first(environment: Environment, name: str) -> None:
    assert not screen(candidate(environment, HONEST), environment.graph)
    evaluation = environment.evaluate([candidate(environment, QUICK[name][0])], Tier.quick)[0]
    assert evaluation.outcome is Outcome.refused
    assert evaluation.diagnostics[0].line > 0
