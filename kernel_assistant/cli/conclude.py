"""The end of a job on the command line: its result, and the exit code."""

from __future__ import annotations

import msgspec

from kernel_assistant.errors import EXIT_CANCELLED, EXIT_GATE, EXIT_INTERNAL, EXIT_OK
from kernel_assistant.records import JobOutcome, OptimizeResult, encode, to_builtins


def conclude(
    result: OptimizeResult, *, as_json: bool, fail_under: float | None = None, host: dict[str, object] | None = None
) -> int:
    """Print `result`, with `host` if it is of another machine; returns the exit code."""
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
        return EXIT_INTERNAL
    return EXIT_GATE if fail_under is not None and confirmed_speedup(result) < fail_under else EXIT_OK


def _number(result: OptimizeResult) -> int | None:
    job = result.artifacts.get("job", "")
    return int(job) if job.isdigit() else None


def confirmed_speedup(result: OptimizeResult) -> float:
    """The confirmed speed-up, over torch.compile if that was measured; 0 if nothing is confirmed."""
    if result.best is None:
        return 0.0
    compared = result.best.speedup_vs_compile
    return result.best.speedup_vs_eager if compared is None else compared
