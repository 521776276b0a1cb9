"""`kernel-assistant optimize --scan ID:CLASS`: optimizes all configurations of a class and reports the share of its
calls that the kernels serve."""

from __future__ import annotations

import json
from typing import Any

from kernel_assistant.cli.conclude import confirmed_speedup
from kernel_assistant.cli.modules.class_jobs import outcome_word, queue_class, watch_classes
from kernel_assistant.cli.text import styled, table
from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_GATE, EXIT_OK
from kernel_assistant.records import OptimizeResult, to_builtins
from kernel_assistant.records.scan import Scan
from kernel_assistant.session.client import Client
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.reporting.words import milliseconds, times
from kernel_assistant.session.scanning.class_tasks import as_document
from kernel_assistant.session.scanning.program_gain import ClassGain, ConfigurationGain, program_speedup
from kernel_assistant.session.scanning.recorded import ClassOfScan


def optimize_class(scanned_class: ClassOfScan, settings: Settings, *, as_json: bool, words: bool) -> int:
    """Queue a job for each configuration, watch one after another, and print which share of the calls the kernels
    serve. Returns the exit code."""
    client = Client(settings)
    queued = queue_class(client, scanned_class.scan, scanned_class.row, settings)
    if settings.detach:
        listed = ", ".join(queued.jobs)
        print(json.dumps({"jobs": queued.jobs}) if as_json else f"jobs {listed}: kernel-assistant jobs lists them")
        return EXIT_OK
    gains = watch_classes(client, [queued], silent=as_json, words=words)
    if gains is None:
        return EXIT_CANCELLED
    (gain,) = gains
    results = [part.result for part in gain.parts if part.result is not None]
    if not results:
        raise next(part.failure for part in gain.parts if part.failure is not None)
    print(
        json.dumps(_document(scanned_class.scan, gain)) if as_json else "\n".join(_report(scanned_class.scan, gain)),
        flush=True,
    )
    return EXIT_OK if _meets(results, gain, settings.fail_under) else EXIT_GATE


def _meets(results: list[OptimizeResult], gain: ClassGain, fail_under: float | None) -> bool:
    """Whether every configuration has kernels that are at least `fail_under` times as fast as the baseline; True
    without `fail_under`."""
    complete = len(results) == len(gain.parts)
    return fail_under is None or (complete and min(map(confirmed_speedup, results)) >= fail_under)


def _report(scan: Scan, gain: ClassGain) -> list[str]:
    row = gain.row
    head = ("", "job", "calls", "time", "outcome", "torch.compile", "eager", "inputs")
    counted = scan.counted_seconds
    after = milliseconds((counted - gain.saved_seconds) * 1e3)
    whole = f"the program without start-up and warm-up: {milliseconds(counted * 1e3)} → {after}"
    lines = [
        styled(f"{row.name} of scan {scan.id}: {len(gain.parts)} configurations", bold=True),
        *table(head, [_cells(part, gain) for part in gain.parts]),
        "",
        served(gain),
        f"{whole}, {times(program_speedup(scan, [gain]))} as fast, by the times that the scan saw",
    ]
    lines += [
        f"#{part.number} is not clear: kernel-assistant confirm {part.job} measures it in full"
        for part in gain.parts
        if part.result is not None and is_unconfirmed(part.result)
    ]
    if gain.served_calls or any(part.applicable for part in gain.parts):
        lines += [f"apply   kernel-assistant apply {scan.spec(gain.row)}", _MEASURE]
    return lines


#: The step after applying.
_MEASURE = "then    kernel-assistant compare measures the program with and without kernels"


def served(gain: ClassGain) -> str:
    """A line that says which share of the class's calls the kernels serve."""
    ready = sum(part.applicable for part in gain.parts)
    kernels = f"kernels for {ready} of {len(gain.parts)} configurations"
    if not any(part.configuration.calls for part in gain.parts):
        return kernels
    share = gain.served_calls / gain.row.calls
    rest = "; the original runs the others" if share < 1 else ""
    return f"{kernels} serve {gain.served_calls} of {gain.row.calls} calls ({share:.0%}){rest}"


def _cells(part: ConfigurationGain, gain: ClassGain) -> tuple[str, ...]:
    whole = sum(one.configuration.seconds for one in gain.parts)
    best = None if part.result is None else part.result.best
    samples = part.configuration.samples
    more = f" and {len(samples) - 1} more" if len(samples) > 1 else ""
    return (
        f"#{part.number}",
        part.job,
        str(part.configuration.calls or "–"),
        f"{part.configuration.seconds / whole:.0%}" if whole else "–",
        outcome_word(part),
        times(None if best is None else best.speedup_vs_compile),
        times(None if best is None else best.speedup_vs_eager),
        f"{samples[0].text}{more}" if samples else "",
    )


def _document(scan: Scan, gain: ClassGain) -> dict[str, Any]:
    """The `--json` output: the result of the first configuration that has one, in the form of a single job's result,
    with the results of all configurations."""
    first = next(part for part in gain.parts if part.result is not None)
    return {
        **to_builtins(first.result),
        "job": int(first.job),
        "scan": scan.id,
        "class": gain.row.key,
        "calls": gain.row.calls,
        "served_calls": gain.served_calls,
        "program_before_seconds": scan.counted_seconds,
        "program_after_seconds": scan.counted_seconds - gain.saved_seconds,
        "configurations": [as_document(part) for part in gain.parts],
    }
