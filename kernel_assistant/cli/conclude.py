"""Ends a command that ran a job: prints the result and chooses the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kernel_assistant.errors import (
    EXIT_CANCELLED,
    EXIT_GATE,
    EXIT_INTERNAL,
    EXIT_MISSING,
    EXIT_OK,
    Cancelled,
    KernelAssistantError,
)
from kernel_assistant.records import JobOutcome, OptimizeResult, encode, to_builtins
from kernel_assistant.session.kinds.obstacles import REFUSED, of_error


def conclude(
    result: OptimizeResult, *, as_json: bool, fail_under: float | None = None, host: dict[str, object] | None = None
) -> int:
    """Print `result`, together with `host` if the job ran on a remote machine. Returns the exit code: EXIT_GATE if
    the confirmed speed-up is below `fail_under`."""
    if as_json:
        result = msgspec.structs.replace(result, job=_number(result))
        document = encode(result) if host is None else encode({**to_builtins(result), "host": host})
        print(document.decode(), flush=True)
    else:
        from kernel_assistant.cli.report import report

        print("\n".join(report(result)), flush=True)
    if result.outcome is JobOutcome.cancelled:
        return EXIT_CANCELLED
    if result.outcome is JobOutcome.failed:
        refused = any(one.check == "policy" and one.outcome == REFUSED for one in result.obstacles)
        return EXIT_MISSING if refused else EXIT_INTERNAL
    return EXIT_GATE if fail_under is not None and confirmed_speedup(result) < fail_under else EXIT_OK


@contextmanager
def failure_as_json(job: str, task: str, target: str, *, as_json: bool) -> Iterator[None]:
    """With `as_json`, prints an exception that ends the job as a result with the outcome `failed`. The exception is
    raised again: its message goes to stderr, and it determines the exit code."""
    try:
        yield
    except Cancelled:
        raise
    except KernelAssistantError as error:
        if as_json:
            failed = OptimizeResult(
                task=task,
                target=target,
                device="",
                outcome=JobOutcome.failed,
                best=None,
                evaluations=0,
                seconds=0.0,
                stop_reason=JobOutcome.failed.value,
                artifacts={"job": job},
                why=error.cause,
                obstacles=(of_error(error),),
            )
            print(encode(msgspec.structs.replace(failed, job=_number(failed))).decode(), flush=True)
        raise


def _number(result: OptimizeResult) -> int | None:
    job = result.artifacts.get("job", "")
    return int(job) if job.isdigit() else None


def confirmed_speedup(result: OptimizeResult) -> float:
    """The confirmed speed-up over torch.compile, or over eager mode if torch.compile was not measured; 0 if none is
    confirmed."""
    if result.best is None:
        return 0.0
    compared = result.best.speedup_vs_compile
    return result.best.speedup_vs_eager if compared is None else compared
