"""Every exploit of the public table that a CUDA plan can contain, without the screen. Compiling needs no GPU."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment import session
from kernel_assistant.environment.builds.compile import CompileFailure, Compiler
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Candidate, Evaluation, Outcome, Tier
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets.base import DeviceFacts
from tests.hostile.gpu_plan_attacks import FULL, HARMLESS, HONEST, QUICK, Attack
from tests.hostile.plan_task import opened

Verdicts = dict[str, Evaluation]

HOPPER = DeviceFacts(target="cuda", name="H200", arch="sm_90")
HONEST_PLAN = Attack(HONEST, ("correct",))
ALL = {"honest": HONEST_PLAN, **QUICK, **FULL, **HARMLESS}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(HOPPER, choose("auto"), tmp_path_factory.mktemp("cubins"), threading.Event())


@pytest.mark.builds
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "name", [name if name == "honest" else pytest.param(name, marks=pytest.mark.slow) for name in ALL]
)
def test_source_compiles_unless_that_is_the_attack(compiler: Compiler, name: str) -> None:
    built = compiler.build(ALL[name].candidate("p_w", "B", "4096"))
    assert isinstance(built, CompileFailure) == ("compile_error" in ALL[name].outcomes), built


@pytest.fixture(scope="module")
def environment(
    gpu_worker: WorkerClient, gpu: DeviceFacts, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    with opened(32, 4096, tmp_path_factory.mktemp("plan"), gpu_worker, gpu, cache_dir) as environment:
        yield environment


def candidate_for(environment: Environment, attack: Attack) -> Candidate:
    weight = next(value for value in environment.graph.inputs if value.kind == "param")
    return attack.candidate(weight.name, *environment.graph.spec("x0").shape)


def judged(environment: Environment, attacks: dict[str, Attack], tier: Tier) -> Verdicts:
    """All attacks, built in parallel and judged one after another without the screen."""
    candidates = [candidate_for(environment, attack) for attack in attacks.values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "screen", lambda candidate, graph: ())
        return dict(zip(attacks, environment.evaluate(candidates, tier), strict=True))


@pytest.fixture(scope="module")
def quick(environment: Environment) -> Verdicts:
    return judged(environment, {"before": HONEST_PLAN, **QUICK, "after": HONEST_PLAN}, Tier.quick)


@pytest.fixture(scope="module")
def full(environment: Environment) -> Verdicts:
    return judged(environment, {"before": HONEST_PLAN, **FULL, **HARMLESS, "after": HONEST_PLAN}, Tier.full)


@pytest.mark.gpu
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("tier", ["quick", "full"])
def test_honest_kernel_is_correct(request: pytest.FixtureRequest, tier: str, when: str) -> None:
    verdict = request.getfixturevalue(tier)[when]
    assert verdict.outcome is Outcome.correct, verdict.message
    assert verdict.timing is not None


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*QUICK, *FULL])
def test_attack_is_not_correct(request: pytest.FixtureRequest, name: str) -> None:
    verdicts = request.getfixturevalue("quick" if name in QUICK else "full")
    assert verdicts["before"].correct
    assert verdicts[name].outcome.value in ALL[name].outcomes, (verdicts[name].outcome, verdicts[name].message)


@pytest.mark.gpu
@pytest.mark.parametrize("name", HARMLESS)
def test_attack_never_gains_time(full: Verdicts, name: str) -> None:
    assert full[name].outcome is Outcome.correct, full[name].message


@pytest.mark.gpu
def test_judge_survives_and_judges_on(environment: Environment, gpu_worker: WorkerClient) -> None:
    pid = gpu_worker.process.pid
    for name in ("reads address 8", "traps", "mutates its input"):
        verdicts = judged(environment, {name: QUICK[name], "after": HONEST_PLAN}, Tier.quick)
        assert verdicts[name].outcome is Outcome.crashed and verdicts["after"].correct, verdicts["after"].message
    assert gpu_worker.process.pid == pid and os.path.exists(f"/proc/{pid}")
