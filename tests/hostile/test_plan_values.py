"""Attacks on the values that are compared, through the real judge, without the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Outcome, Tier
from kernel_assistant.targets.base import DeviceFacts
from tests.hostile import plan_value_attacks as attacks
from tests.hostile.plan_attacks import HONEST
from tests.hostile.plan_task import opened_text, softmax_candidate, softmax_text

#: The text of each module → its name, and its honest kernel.
NAMES = {getattr(attacks, name.upper()): name for name in ("linear", "sums", "logarithms", "choice", "table")}
HONEST_ONES = {text: getattr(attacks, f"HONEST_{name.upper()}") for text, name in NAMES.items()}
SOFTMAX = softmax_text(32, 4096)


class Opened(dict[str, Environment]):
    """By the module's text, each opened when it is asked for: a worker has one task open at a time."""

    def __init__(self, stack: ExitStack, opened: Callable[[str], AbstractContextManager[Environment]]) -> None:
        super().__init__()
        self._stack, self._opened = stack, opened

    def __missing__(self, text: str) -> Environment:
        self.clear()
        self._stack.close()
        self[text] = self._stack.enter_context(self._opened(text))
        return self[text]


@pytest.fixture(scope="module")
def environments(
    worker: WorkerClient, device: DeviceFacts, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    with ExitStack() as stack:
        yield Opened(stack, lambda text: opened_text(text, tmp_path_factory.mktemp("v"), worker, device, cache_dir))


def of_all(named: dict[str, dict[str, object]]) -> list[object]:
    return [pytest.param(text, name, id=f"{NAMES[text]}: {name}") for text, some in named.items() for name in some]


@pytest.mark.parametrize(("text", "source"), HONEST_ONES.items(), ids=map(NAMES.get, HONEST_ONES))
def test_honest_kernel_is_correct(environments: dict[str, Environment], text: str, source: str) -> None:
    environment = environments[text]
    for tier in (Tier.verify, Tier.quick, Tier.full):
        evaluation = environment.evaluate([attacks.candidate(environment, source)], tier)[0]
        assert evaluation.outcome is Outcome.correct, evaluation.message


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize(("text", "name"), of_all(attacks.QUICK))
def test_attack_is_not_correct(environments: dict[str, Environment], text: str, name: str) -> None:
    source, outcomes = attacks.QUICK[text][name]
    environment = environments[text]
    evaluation = environment.evaluate([attacks.candidate(environment, source)], Tier.quick)[0]
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize(("text", "name"), of_all(attacks.HARMLESS))
def test_attack_never_gains_time(environments: dict[str, Environment], text: str, name: str) -> None:
    environment = environments[text]
    evaluation = environment.evaluate([attacks.candidate(environment, attacks.HARMLESS[text][name])], Tier.full)[0]
    assert evaluation.outcome is Outcome.correct, evaluation.message


def test_nothing_is_kept_from_one_input_to_the_next(environments: dict[str, Environment]) -> None:
    """Without timing, too: rewards with nominal times rest on the tier `verify`."""
    environment = environments[SOFTMAX]
    honest, kept = softmax_candidate(environment, HONEST), softmax_candidate(environment, attacks.KEPT)
    found = environment.evaluate([honest, kept, attacks.prepared(environment, HONEST)], Tier.verify)
    assert [one.outcome for one in found] == [Outcome.correct, Outcome.incorrect, Outcome.incorrect]


@pytest.mark.usefixtures("unscreened")
def test_strict_is_strict_while_timed(
    worker: WorkerClient, device: DeviceFacts, cache_dir: Path, tmp_path: Path
) -> None:
    with opened_text(SOFTMAX, tmp_path, worker, device, cache_dir, "strict") as environment:
        for source, outcome in ((HONEST, Outcome.correct), (attacks.STRICT, Outcome.cheating)):
            evaluation = environment.evaluate([softmax_candidate(environment, source)], Tier.quick)[0]
            assert evaluation.outcome is outcome, evaluation.message
