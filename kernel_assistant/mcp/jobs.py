"""Runs a job in a tool call: submits it, reports its progress, and cancels it if the call is cancelled."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from kernel_assistant.config import Settings
from kernel_assistant.errors import HostError
from kernel_assistant.records import JobOutcome, KernelTask, OptimizeResult, to_builtins
from kernel_assistant.session.client import Client, EventStream
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.reporting.event_lines import words
from kernel_assistant.session.reporting.verdicts import of_program, why_nothing
from kernel_assistant.session.reporting.watching import result_of
from kernel_assistant.session.reporting.words import way_to_take
from kernel_assistant.store import JobOptions

#: `(progress, message)`: seconds since the call began, which only grow.
Report = Callable[[float, str], Awaitable[None]]
_POLL_SECONDS = 0.5


async def submit(settings: Settings, task: KernelTask, options: JobOptions) -> str:
    """Submit a job and return its number."""
    submitted = await to_thread.run_sync(Client(settings).submit, task, options)
    return str(submitted["job"])


async def finish(settings: Settings, job: str, report: Report, *, cancel_with_call: bool) -> OptimizeResult:
    """Watch a job from its first event to its end, and return its result. Raises the error of a job that failed.

    With `cancel_with_call` the job is cancelled if the call is cancelled or its client disconnects.
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
            event = await to_thread.run_sync(stream.next, _POLL_SECONDS, abandon_on_cancel=True)
        except TimeoutError:
            continue
        if event is None:
            raise HostError("the session host said nothing of the job's end", f"ask for the result of job {stream.job}")
        result = result_of(event)
        if result is not None:
            return result
        message = words(event)
        if message:
            await report(time.monotonic() - began, message)


def brief(result: OptimizeResult, job: str) -> dict[str, Any]:
    """The parts of a result that an agent needs: figures with their intervals, and the next step."""
    best = result.best
    nothing = result.outcome is JobOutcome.no_candidate
    document: dict[str, Any] = {
        "job": job,
        "task": result.task,
        "target": result.target,
        "device": result.device,
        "outcome": result.outcome.value,
        "offer": result.offered.value,
        "over_torch_compile": result.vs_compile.value,
        "over_eager": result.vs_eager.value,
        "program_runs_it": result.program.value,
        "evaluations": result.evaluations,
        "seconds": round(result.seconds, 1),
        "stop_reason": result.stop_reason,
        "why": why_nothing(result, budget="budget_seconds") if nothing else result.why,
        "obstacles": to_builtins(result.obstacles),
        "artifacts": result.artifacts,
    }
    if result.spent is not None:
        document["spent"] = to_builtins(result.spent)
    if best is not None:
        document["best"] = {
            "speedup_vs_compile": best.speedup_vs_compile,
            "speedup_vs_compile_99.9%": best.speedup_vs_compile_ci,
            "speedup_vs_eager": best.speedup_vs_eager,
            "speedup_vs_eager_99.9%": best.speedup_vs_eager_ci,
            "relative_error": best.relative_error,
            "error_vs_float64": best.error_vs_fp64,
            "error_over_pytorchs": best.error_ratio,
            "roofline": best.roofline,
            "share_in_our_kernels": best.share_in_our_kernels,
            "calls_left_to_pytorch": best.residual,
        }
    if result.applicable:
        way = way_to_take(result.session, job).removeprefix("kernel-assistant ")
        document["next"] = way + (f": {words}" if (words := of_program(result)) else "")
    elif is_unconfirmed(result):
        document["next"] = f"confirm {job}: its best candidate was not measured in full, or not clearly"
    if result.free_wins:
        document["without_a_kernel"] = [
            {"change": win.write, "speedup_vs_compile": win.speedup_vs_compile, "passes": win.passes, "note": win.note}
            for win in result.free_wins
        ]
    return document
