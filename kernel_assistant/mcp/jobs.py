"""A job as a tool call: submit, tell its progress, and cancel it where the call is cancelled."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from kernel_assistant.config import Settings
from kernel_assistant.errors import HostError
from kernel_assistant.events import (
    AnyEvent,
    BaselineMeasured,
    BestImproved,
    CandidateEvaluated,
    FreeWinMeasured,
    JobFailed,
    JobFinished,
    JobQueued,
    JobStarted,
    ModelSaid,
    Progress,
    TaskOpened,
    Warned,
)
from kernel_assistant.records import KernelTask, OptimizeResult
from kernel_assistant.session.client import Client, EventStream
from kernel_assistant.session.watching import failure_of
from kernel_assistant.store import JobOptions

#: `(progress, message)`: seconds since the call began, which only grow.
Report = Callable[[float, str], Awaitable[None]]
_LOOK_EVERY = 0.5


async def submit(settings: Settings, task: KernelTask, options: JobOptions) -> str:
    """The job's number."""
    found = await to_thread.run_sync(Client(settings).submit, task, options)
    return str(found["job"])


async def finish(settings: Settings, job: str, report: Report, *, cancel_with_call: bool) -> OptimizeResult:
    """The result of a job, watched from its first event. Raises what it failed with.

    A call that is cancelled, or whose client goes, cancels the job if `cancel_with_call`.
    """
    client = Client(settings)
    try:
        stream = await to_thread.run_sync(client.attach, job)
        try:
            return await _watch(stream, report)
        finally:
            stream.close()
    except anyio.get_cancelled_exc_class():
        if cancel_with_call:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(partial(client.cancel, job, timeout=5.0))
        raise


async def _watch(stream: EventStream, report: Report) -> OptimizeResult:
    began = time.monotonic()
    while True:
        try:
            event = await to_thread.run_sync(stream.next, _LOOK_EVERY, abandon_on_cancel=True)
        except TimeoutError:
            continue
        if event is None:
            raise HostError("the session host said nothing of the job's end", f"ask for the result of job {stream.job}")
        if isinstance(event, JobFailed):
            raise failure_of(event)
        if isinstance(event, JobFinished):
            return event.result
        said = words(event)
        if said:
            await report(time.monotonic() - began, said)


def words(event: AnyEvent) -> str:
    """One line for a person, "" for what only programs want."""
    match event:
        case JobQueued(position=position):
            return f"waiting for {position} jobs" if position else ""
        case JobStarted(device=device):
            return f"started on {device}"
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
        case ModelSaid(role="assistant", text=text) if text.strip():
            return f"model: {text.strip().splitlines()[0]}"
        case _:
            return ""


def brief(result: OptimizeResult, job: str) -> dict[str, Any]:
    """What an agent needs of a result: figures with their intervals, and what to do next."""
    best = result.best
    found: dict[str, Any] = {
        "job": job,
        "task": result.task,
        "target": result.target,
        "device": result.device,
        "outcome": result.outcome.value,
        "evaluations": result.evaluations,
        "seconds": round(result.seconds, 1),
        "stop_reason": result.stop_reason,
        "artifacts": result.artifacts,
    }
    if best is not None:
        found["best"] = {
            "speedup_vs_compile": best.speedup_vs_compile,
            "speedup_vs_compile_99.9%": best.speedup_vs_compile_ci,
            "speedup_vs_eager": best.speedup_vs_eager,
            "error_vs_float64": best.error_vs_fp64,
            "error_over_pytorchs": best.error_ratio,
            "roofline": best.roofline,
            "share_in_our_kernels": best.share_in_our_kernels,
            "calls_left_to_pytorch": best.residual,
        }
    if result.free_wins:
        found["without_a_kernel"] = [
            {"change": win.write, "speedup_vs_compile": win.speedup_vs_compile, "passes": win.passes, "note": win.note}
            for win in result.free_wins
        ]
    return found
