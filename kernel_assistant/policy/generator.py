"""GeneratorPolicy: tries the generator's schedules, first one that is safe, then batches close to the fastest schedule
so far."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule, read_schedule
from kernel_assistant.generator.search.ladders import LADDERS
from kernel_assistant.generator.search.search import around, initial
from kernel_assistant.generator.support import Family, classify
from kernel_assistant.policy.base import EpisodeView, PolicyAction
from kernel_assistant.records import Evaluation, Numerics, OpGraph, Outcome

#: Most candidates of one turn, and of one episode.
BATCH = {"cpu": 3, "cuda": 14}
MOST = {"cpu": 16, "cuda": 64}
#: The search ends when the best schedule reaches this share of the roofline.
ROOFLINE_REACHED = 0.97
#: Differences below this do not count as an effect of a parameter.
NO_EFFECT = 0.01


@dataclass(frozen=True)
class ScheduleResult:
    """One evaluated schedule. `ms` is its time in milliseconds, None if its candidate failed; `roofline` is the lower
    bound of the time divided by the measured time, 0 if unknown."""

    schedule: Schedule
    ms: float | None
    roofline: float


class GeneratorPolicy:
    """Searches schedules by successive refinement. Its answer depends only on the view; the object has no state."""

    name = "generator"

    def supports(self, graph: OpGraph, target: str) -> str | None:
        """Returns None if the generator can write kernels for this graph, else the reason in one line."""
        family = classify(graph, target)
        return None if isinstance(family, Family) else family

    def step(self, view: EpisodeView) -> PolicyAction:
        """Returns an action with the next batch of schedules to try, or with `finished`."""
        tried = _tried(view)
        refused = next((one.message for step in view.steps for one in step.evaluations if _is_refused(one)), "")
        if refused:
            return PolicyAction(
                message=f"what the screen refuses, it refuses of any schedule: {refused}", finished=True
            )
        try:
            first = initial(view.graph, view.target, view.device, view.numerics is Numerics.paper)
        except Unsupported as error:  # not on this device
            return PolicyAction(message=str(error), finished=True)
        if not tried:
            return _action(view, "a safe first schedule", first[:1])
        best = min((item for item in tried if item.ms is not None), key=lambda item: item.ms or 0.0, default=None)
        if best is not None and best.roofline >= ROOFLINE_REACHED:
            return PolicyAction(
                message=f"{best.schedule.text()} reaches {best.roofline:.0%} of the roofline", finished=True
            )
        left = MOST[view.target] - len(tried)
        batch = _next(view, first, tried, best, min(left, BATCH[view.target]))
        if not batch:
            return PolicyAction(message=f"nothing left to try after {len(tried)} schedules", finished=True)
        return _action(view, _reason(best), batch)


def _is_refused(evaluation: Evaluation) -> bool:
    return evaluation.outcome is Outcome.refused


def _tried(view: EpisodeView) -> list[ScheduleResult]:
    """Returns the schedules that were evaluated in earlier steps, each with its time, in order."""
    results = []
    for step in view.steps:
        for candidate, evaluation in zip(step.candidates, step.evaluations, strict=True):
            schedule = read_schedule(candidate.plan.target, candidate.plan.schedule)
            timing = evaluation.timing if evaluation.correct else None
            results.append(
                ScheduleResult(schedule, timing.ranked_ms if timing else None, timing.roofline if timing else 0.0)
            )
    return results


def _next(
    view: EpisodeView, first: list[Schedule], tried: list[ScheduleResult], best: ScheduleResult | None, most: int
) -> list[Schedule]:
    """Returns at most `most` untried schedules: first those in the list `first`; after that, the neighbours of the best
    schedule and of schedules that are almost as fast."""
    seen = {item.schedule for item in tried}
    waiting = [schedule for schedule in first if schedule not in seen]
    if waiting or best is None:
        return waiting[:most]
    leave = without_effect(tried, view.target)
    near = sorted(
        (item for item in tried if item.ms and best.ms and item.ms <= 1.02 * best.ms), key=lambda item: item.ms or 0.0
    )
    for item in near[:3]:
        near_it = around(view.graph, item.schedule, view.device, leave)
        fresh = list(islice((schedule for schedule in near_it if schedule not in seen), most))
        if fresh:
            return fresh
    return []


def without_effect(tried: list[ScheduleResult], target: str) -> frozenset[str]:
    """Returns the names of the schedule's parameters that have no effect on the time: at least two pairs of tried
    schedules differ only in the parameter, and each pair takes the same time."""
    names = {name for ladders in LADDERS[target].values() for name in ladders}
    inside = {name for item in tried for name, _ in item.schedule.settings() if name.rpartition(".")[2] in names}
    return frozenset(name for name in inside if _no_effect(tried, name))


def _no_effect(tried: list[ScheduleResult], name: str) -> bool:
    groups: dict[tuple[tuple[str, ...], tuple[tuple[str, int], ...]], list[float]] = {}
    # `items` follows from the others, so it does not count as a difference.
    follows = name.rpartition(".")[0] + "." * ("." in name) + "items"
    for item in tried:
        settings = item.schedule.settings()
        if item.ms is None or name not in dict(settings):
            continue
        rest = tuple((key, value) for key, value in settings if key not in (name, follows))
        groups.setdefault((item.schedule.forms(), rest), []).append(item.ms)
    pairs = [times for times in groups.values() if len(times) > 1]
    return sum(len(times) - 1 for times in pairs) >= 2 and all(max(t) <= (1 + NO_EFFECT) * min(t) for t in pairs)


def _reason(best: ScheduleResult | None) -> str:
    if best is None or best.ms is None:
        return "nothing has worked yet: other schedules"
    share = f", {best.roofline:.0%} of the roofline" if best.roofline else ""
    return f"best so far {best.schedule.text()} at {best.ms:.4g} ms{share}"


def _action(view: EpisodeView, message: str, schedules: list[Schedule]) -> PolicyAction:
    return PolicyAction(message=message, candidates=tuple(emit(view.graph, schedule) for schedule in schedules))
