"""The generator beside a model, with as many evaluations on the same open task, and the structure of its plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernel_assistant.agent.turns import TurnLoop
from kernel_assistant.environment.session import Environment
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Plan, Step, StopReason, Tier
from kernel_assistant.targets.base import DeviceFacts

#: Launches in order, each with the buffers that it uses; scratch buffers are named by order of appearance.
Structure = tuple[tuple[str, ...], ...]
Judged = tuple[Candidate, Evaluation]


def quickly(environment: Environment, candidates: Iterable[Candidate]) -> Iterator[Judged]:
    """The candidates with their evaluations in the quick tier."""
    some = list(candidates)
    return zip(some, environment.iterate(some, Tier.quick), strict=True)


def play(environment: Environment, baseline: Baseline, count: int) -> tuple[str, list[Judged]]:
    """Why the generator cannot write the graph, or "", and its first `count` candidates."""
    policy, steps = GeneratorPolicy(), list[Step]()
    refused = policy.supports(environment.graph, environment.device.target)
    if refused is not None:
        return refused, []

    def left() -> int:
        return count - sum(len(step.candidates) for step in steps)

    TurnLoop(
        task=environment,
        policy=policy.step,
        judge=lambda action, _: quickly(environment, action.candidates[: left()]),
        stop_rule=lambda: None if left() else StopReason.turns,
        baseline=lambda: baseline,
        steps=steps,
    ).run()
    return "", [judged for step in steps for judged in zip(step.candidates, step.evaluations, strict=True)]


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
    every = [(launch, [value for _, value in launch.args]) for launch in (*plan.prepare, *plan.launches)]
    known: dict[str, str] = {spec.name: spec.name for spec in (*plan.inputs, *plan.outputs)}
    inside, structures = {spec.name for spec in (*plan.scratch, *plan.packed)}, list[tuple[str, ...]]()

    def uses(name: str) -> list[int]:
        return [index for index, (_, values) in enumerate(every) for value in values if value == name]

    for launch, values in every:
        # Buffers that appear for the first time in the same launch are ordered by their other uses.
        for name in sorted(inside.intersection(values) - known.keys(), key=uses):
            known[name] = f"s{len(known)}"
        kind = launch.library or ("call" if launch.call else "kernel")
        structures.append((kind, *sorted(known[value] for value in values if value in known)))
    return tuple(structures)
