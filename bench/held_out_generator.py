"""The generator beside a model, with as many evaluations on the same open task, and the structure of its plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kernel_assistant.agent.turns import TurnLoop
from kernel_assistant.environment.session import Environment
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial
from kernel_assistant.policy.base import PolicyAction
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Plan, StopReason, Tier
from kernel_assistant.targets.base import DeviceFacts

#: Launches in order, each with the buffers that it uses; scratch buffers are named by order of appearance.
Structure = tuple[tuple[str, ...], ...]


def play(environment: Environment, baseline: Baseline, count: int) -> tuple[str, list[tuple[Candidate, Evaluation]]]:
    """Why the generator cannot write the graph, or "", and its first `count` candidates with evaluations in the quick
    tier."""
    policy = GeneratorPolicy()
    refused = policy.supports(environment.graph, environment.device.target)
    evaluated: list[tuple[Candidate, Evaluation]] = []
    if refused is not None or not count:
        return refused or "", evaluated

    def judge(action: PolicyAction, _: int) -> Iterator[tuple[Candidate, Evaluation]]:
        candidates = action.candidates[: count - len(evaluated)]
        for one in zip(candidates, environment.iterate(candidates, Tier.quick), strict=True):
            evaluated.append(one)
            yield one

    TurnLoop(
        task=environment,
        policy=policy.step,
        judge=judge,
        stop_rule=lambda: StopReason.turns if len(evaluated) >= count else None,
        baseline=lambda: baseline,
    ).run()
    return "", evaluated


def is_outside(candidate: Candidate, graph: OpGraph, device: DeviceFacts, tried: Iterable[Candidate]) -> bool:
    """Whether `emit` did not write the candidate and the generator tries no plan of its structure for this graph."""
    if parse(candidate) is not None:
        return False
    plans = [one.plan for one in tried]
    if GeneratorPolicy().supports(graph, device.target) is None:
        plans += [emit(graph, schedule).plan for schedule in initial(graph, device.target, device)]
    return structure(candidate.plan) not in {structure(plan) for plan in plans}


def structure(plan: Plan) -> Structure:
    """The kind of each launch and its buffers, without schedules, sizes and the order of arguments."""
    known: dict[str, str] = {spec.name: spec.name for spec in (*plan.inputs, *plan.outputs)}
    inside = {spec.name for spec in (*plan.scratch, *plan.packed)}
    launches = []
    for launch in (*plan.prepare, *plan.launches):
        # Buffers that appear for the first time in the same launch are ordered by their other uses.
        fresh = sorted({value for _, value in launch.args if value in inside and value not in known}, key=_users(plan))
        known |= {name: f"s{len(known) + index}" for index, name in enumerate(fresh)}
        kind = [launch.library or ("call" if launch.call else "kernel")]
        launches.append((*kind, *sorted(known[value] for _, value in launch.args if value in known)))
    return tuple(launches)


def _users(plan: Plan) -> Any:
    users: dict[str, list[int]] = {}
    for index, launch in enumerate((*plan.prepare, *plan.launches)):
        for _, value in launch.args:
            users.setdefault(value, []).append(index)
    return lambda name: users.get(name, [])
