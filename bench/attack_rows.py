"""The attacks of the hostile suites with their honest forms, as rows of candidates that `bench.trust` judges: without
the screen, because the other checks have to suffice without it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from bench.verdicts import Label, Row
from kernel_assistant.environment.freeform import task_of
from kernel_assistant.environment.freeform_candidate import ModelCandidate, load_candidate
from kernel_assistant.environment.session import Environment
from kernel_assistant.generator.emit import SOURCE, emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Candidate, Tier
from tests.hostile import freeform_attacks, gpu_plan_attacks, plan_attacks, plan_process_attacks, plan_value_attacks
from tests.hostile.plan_task import softmax_candidate, softmax_text
from tests.judge import kernels
from tests.residual.modules import LINEAR
from tests.residual.test_hostile import BORROWED


def attack_rows(target: str) -> list[Row]:
    """The rows of the hostile suites, which also have their honest forms."""
    if target == "cuda":
        return [_gpu_softmax()]
    return [_softmax(), _memory(), *_values(), _residual(), _freeform(), _freeform(Tier.full)]


@contextmanager
def _opened(text: str, name: str, target: str = "cpu") -> Iterator[Environment]:
    """An environment of a module of the tests, which traces its graph."""
    with tempfile.TemporaryDirectory() as folder:
        worker = kernels.new_worker(Path(folder) / "worker.log")
        task = replace(kernels.task(text, name), target=target)
        with kernels.environment(worker, Path(folder) / "cache", task) as environment:
            yield environment
        worker.close()


def _row(environment: Environment, found: Iterable[tuple[str, Candidate, Tier]]) -> Row:
    labels = (Label(source=name, candidate=one, tier=tier, screened=False) for name, one, tier in found)
    return Row(task=environment.task, graph=environment.graph, labels=tuple(labels))


def _softmax() -> Row:
    attacks = plan_attacks
    quick = {"honest: softmax": attacks.HONEST} | _cheats({**attacks.QUICK, **plan_process_attacks.QUICK})
    quick |= _cheats(plan_process_attacks.PAST_THE_SCREEN)
    full = {"honest: softmax": attacks.HONEST} | _cheats({**attacks.FULL, **plan_value_attacks.FULL})
    full |= {f"honest: {name}": one for name, one in attacks.DECLARED.items()}
    full |= {f"cheat: {name}": one for name, one in attacks.HIDDEN.items()}
    return _attacked(32, 4096, quick, full)


def _memory() -> Row:
    """Attacks that spoil their outputs if they gain time: correct if they never did."""
    harmless = {**plan_attacks.HARMLESS, **plan_process_attacks.HARMLESS}
    return _attacked(4, 256, {}, {f"denied: {name}": one for name, one in harmless.items()})


def _values() -> Iterator[Row]:
    """Attacks on the values of a linear layer, of logarithms, of sums of integers, of choices, and of what is gathered
    by them."""
    attacks = plan_value_attacks
    ones = (
        (attacks.LINEAR, attacks.HONEST_LINEAR),
        (attacks.LOGARITHMS, attacks.HONEST_LOGARITHMS),
        (attacks.SUMS, attacks.HONEST_SUMS),
        (attacks.CHOICE, attacks.HONEST_CHOICE),
        (attacks.TABLE, attacks.HONEST_TABLE),
    )
    for text, honest in ones:
        found = [(name, one, Tier.quick) for name, one in _cheats(attacks.QUICK[text]).items()]
        found += [(f"denied: {name}", one, Tier.full) for name, one in attacks.HARMLESS.get(text, {}).items()]
        found += [("honest: by hand", honest, tier) for tier in (Tier.quick, Tier.full)]
        with _opened(text, "Model") as environment:
            yield _row(environment, ((name, attacks.candidate(environment, one), tier) for name, one, tier in found))


def _cheats(attacks: Mapping[str, tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    return {f"cheat: {name}": text for name, (text, _) in attacks.items()}


def _attacked(rows: int, columns: int, quick: dict[str, str], full: dict[str, str]) -> Row:
    with _opened(softmax_text(rows, columns), "Model") as environment:
        tiers = ((quick, Tier.quick), (full, Tier.full))
        texts = [(name, text, tier) for some, tier in tiers for name, text in some.items()]
        return _row(environment, ((name, softmax_candidate(environment, text), tier) for name, text, tier in texts))


def _gpu_softmax() -> Row:
    attacks = gpu_plan_attacks
    quick = {"honest: softmax": attacks.Attack(attacks.HONEST, ()), **attacks.QUICK}
    with _opened(softmax_text(32, 4096), "Model", "cuda") as environment:
        weight = next(value.name for value in environment.graph.inputs if value.kind == "param")
        shape = environment.graph.spec("x0").shape
        tiers = ((quick, Tier.quick), ({**attacks.FULL, **attacks.HARMLESS}, Tier.full))
        texts = [(name, one, tier) for some, tier in tiers for name, one in some.items()]
        return _row(environment, ((name, one.candidate(weight, *shape), tier) for name, one, tier in texts))


def _residual() -> Row:
    """Calls that stay PyTorch's: honest, from within a kernel, and of another operator."""
    with _opened(LINEAR, "Linear") as environment:
        honest = emit(environment.graph, initial(environment.graph, "cpu", environment.device)[0])
        plan, (first, *others) = honest.plan, honest.plan.launches
        assert first.call is not None
        head, launcher, body = re.split(r'(extern "C" void \w+_rows\(.*\{)', honest.sources[SOURCE["cpu"]], maxsplit=1)
        asks = f"{plan_attacks.SYSTEM}{head}{plan_attacks.PYTHON}{launcher} {BORROWED}{body}"
        foreign = replace(first, call=replace(first.call, nodes=(replace(first.call.call, op="bilinear"),)))
        found = {
            "honest: residual calls": honest,
            "cheat: asks PyTorch": replace(honest, sources={**honest.sources, SOURCE["cpu"]: asks}),
            "cheat: another operator": replace(honest, plan=replace(plan, launches=(foreign, *others))),
        }
        return _row(environment, ((name, one, Tier.quick) for name, one in found.items()))


def _freeform(tier: Tier = Tier.quick) -> Row:
    """The attacks in ModelNew files, which share one extension."""
    attacks = freeform_attacks
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solution.py"
        path.write_text(attacks.HONEST + attacks.REFERENCE)
        honest = load_candidate(path)
    assert isinstance(honest, ModelCandidate)
    task = replace(task_of(honest, None, "cpu", "kernelbench"), path="/nowhere/solution.py")
    named = {"honest: free-form": honest.text, **_cheats(attacks.QUICK if tier is Tier.quick else attacks.FULL)}
    labels = (Label(source=name, candidate=text, screened=False, tier=tier) for name, text in named.items())
    return Row(task=task, labels=tuple(labels))
