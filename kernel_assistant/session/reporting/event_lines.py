"""Describes an event of a job in one line."""

from __future__ import annotations

from kernel_assistant.events import (
    AnyEvent,
    BaselineMeasured,
    BestImproved,
    CandidateEvaluated,
    FreeWinMeasured,
    JobQueued,
    JobStarted,
    ModelReplied,
    Progress,
    TaskOpened,
    Warned,
)


def words(event: AnyEvent) -> str:
    """Returns a line that describes the event to users; "" for events that only programs need."""
    match event:
        case JobQueued(position=position):
            return f"waiting for {position} jobs" if position else ""
        case JobStarted(device=device, budget=budget):
            return f"started on {device}" + (f", {budget:.0f} s for all of it" if budget else "")
        case Progress(message=message) | Warned(message=message):
            return message
        case TaskOpened(nodes=nodes):
            return f"traced, {nodes} operations"
        case BaselineMeasured(eager_ms=eager, compile_ms=compiled):
            return f"eager {eager:.3g} ms" + (f", torch.compile {compiled:.3g} ms" if compiled else "")
        case CandidateEvaluated(turn=turn, evaluation=evaluation):
            return f"turn {turn}: {evaluation.outcome.value.replace('_', ' ')}, {evaluation.message}"
        case BestImproved(candidate_ms=ms, speedup_vs_compile=compiled, speedup_vs_eager=eager, confirmed=confirmed):
            gain = f"{eager:.2f}× eager" if compiled is None else f"{compiled:.2f}× torch.compile"
            return f"best {ms:.3g} ms, {gain}" + ("" if confirmed else ", not confirmed yet")
        case FreeWinMeasured(win=win):
            return f"without a kernel: {win.name.replace('_', ' ')}"
        case ModelReplied(role="assistant", text=text) if text.strip():
            return f"model: {text.strip().splitlines()[0]}"
        case _:
            return ""
