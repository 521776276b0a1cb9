"""The generator beside a model: the same number of evaluations on the same open task, and what its plans look like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel_assistant.environment.session import Environment
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search import initial
from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Plan, Step, Tier
from kernel_assistant.targets.base import DeviceFacts

#: Launches in order, each with the buffers that it gets; scratch by order of appearance.
Structure = tuple[tuple[str, ...], ...]


def play(environment: Environment, baseline: Baseline, count: int) -> tuple[str, list[tuple[Candidate, Evaluation]]]:
    """Why it cannot write the graph, or "", and its first `count` candidates in the quick tier."""
    policy, target = GeneratorPolicy(), environment.device.target
    refused = policy.supports(environment.graph, target)
    steps: list[Step] = []
    found: list[tuple[Candidate, Evaluation]] = []
    while refused is None and len(found) < count:
        view = EpisodeView(
            graph=environment.graph,
            target=target,
            device=environment.device,
            baseline=baseline,
            steps=tuple(steps),
            remaining=600.0,
        )
        move = policy.step(view)
        if move.finished:
            break
        candidates = move.candidates[: count - len(found)]
        evaluations = tuple(environment.iterate(candidates, Tier.quick))
        found += zip(candidates, evaluations, strict=True)
        steps.append(
            Step(
                turn=len(steps) + 1,
                message=move.message,
                candidates=candidates,
                evaluations=evaluations,
                started=0.0,
                ended=0.0,
            )
        )
    return refused or "", found


def is_outside(candidate: Candidate, graph: OpGraph, device: DeviceFacts, tried: Iterable[Candidate]) -> bool:
    """Whether it is nothing that `emit` wrote, and of no structure that the generator tries for this graph."""
    if parse(candidate) is not None:
        return False
    plans = [one.plan for one in tried]
    if GeneratorPolicy().supports(graph, device.target) is None:
        plans += [emit(graph, schedule).plan for schedule in initial(graph, device.target, device)]
    return structure(candidate.plan) not in {structure(plan) for plan in plans}


def structure(plan: Plan) -> Structure:
    """What each launch reads and writes: not how, not in which order its arguments stand, not of which size."""
    known: dict[str, str] = {spec.name: spec.name for spec in (*plan.inputs, *plan.outputs)}
    inside = {spec.name for spec in (*plan.scratch, *plan.packed)}
    found = []
    for launch in (*plan.prepare, *plan.launches):
        # Buffers that appear together for the first time get their names in a stable order: by who else uses them.
        fresh = sorted({value for _, value in launch.args if value in inside and value not in known}, key=_users(plan))
        known |= {name: f"s{len(known) + place}" for place, name in enumerate(fresh)}
        kind = [launch.library or ("call" if launch.call else "kernel")]
        found.append((*kind, *sorted(known[value] for _, value in launch.args if value in known)))
    return tuple(found)


def _users(plan: Plan) -> Any:
    places: dict[str, list[int]] = {}
    for place, launch in enumerate((*plan.prepare, *plan.launches)):
        for _, value in launch.args:
            places.setdefault(value, []).append(place)
    return lambda name: places.get(name, [])
