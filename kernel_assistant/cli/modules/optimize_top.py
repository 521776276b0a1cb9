"""`kernel-assistant optimize --scan ID --top N`: starts jobs for the N classes whose kernels can save a program most
time."""

from __future__ import annotations

import json
from typing import Any

from kernel_assistant.cli.modules.class_jobs import outcome_word, queue_class, watch_classes
from kernel_assistant.cli.text import table
from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_OK, UsageError
from kernel_assistant.records.scan import Scan
from kernel_assistant.session.client import Client
from kernel_assistant.session.reporting.words import milliseconds, times
from kernel_assistant.session.scanning.class_tasks import as_document
from kernel_assistant.session.scanning.program_gain import ClassGain, ConfigurationGain, program_speedup, worth_most
from kernel_assistant.store.scans import ScanStore


def optimize_top(scan_id: str, count: int, settings: Settings, *, as_json: bool, words: bool) -> int:
    """Queue the jobs, watch one after another, and print how much faster the whole program gets. Each class gets the
    whole budget, which its configurations share. Ctrl-C cancels all jobs. Returns the exit code."""
    if ":" in scan_id or settings.host:
        raise UsageError(
            "--top takes the classes of a scan on this machine", "kernel-assistant optimize --scan last --top 3"
        )
    scan = ScanStore(settings.state_dir).scan(scan_id)
    client = Client(settings)
    queued = [queue_class(client, scan, row, settings) for row in worth_most(scan, count)]
    if settings.detach:
        jobs = [job for one in queued for job in one.jobs]
        print(json.dumps({"jobs": jobs}) if as_json else f"jobs {', '.join(jobs)}: kernel-assistant jobs lists them")
        return EXIT_OK
    gains = watch_classes(client, queued, silent=as_json, words=words)
    if gains is None:
        return EXIT_CANCELLED
    print(json.dumps(_document(scan, gains)) if as_json else "\n".join(_report(scan, gains)), flush=True)
    return EXIT_OK


def _report(scan: Scan, gains: list[ClassGain]) -> list[str]:
    rows = [_cells(part, gain, scan) for gain in gains for part in gain.parts]
    whole = sum(gain.saved_seconds for gain in gains)
    left = milliseconds((scan.counted_seconds - whole) * 1e3)
    faster = f"{milliseconds(scan.counted_seconds * 1e3)} → {left}, {times(program_speedup(scan, gains))} as fast"
    applied = [f"apply   kernel-assistant apply {scan.spec(gain.row)}" for gain in gains if gain.saved_seconds]
    return [
        *table(("class", "job", "outcome", "eager", "of the program", "calls served"), rows),
        "",
        f"the program of scan {scan.id} without start-up and warm-up: {faster}, by the times that the scan saw",
        *applied,
        *(["then    kernel-assistant compare measures the program with and without kernels"] if applied else []),
    ]


def _cells(part: ConfigurationGain, gain: ClassGain, scan: Scan) -> tuple[str, ...]:
    best = None if part.result is None else part.result.best
    faster = times(None if best is None else best.speedup_vs_eager)
    if part.number > 1:
        return (f"  #{part.number}", part.job, outcome_word(part), faster, "", "")
    calls = f"{gain.served_calls} of {gain.row.calls}"
    return (gain.row.name, part.job, outcome_word(part), faster, _saved(gain, scan), calls)


def _saved(gain: ClassGain, scan: Scan) -> str:
    share = f"{gain.row.share_seconds / scan.counted_seconds:.1%}"
    return f"{share}, {gain.saved_seconds / scan.counted_seconds:.1%} saved" if gain.saved_seconds else share


def _document(scan: Scan, gains: list[ClassGain]) -> dict[str, Any]:
    saved = sum(gain.saved_seconds for gain in gains)
    return {
        "scan": scan.id,
        "before_seconds": scan.counted_seconds,
        "after_seconds": scan.counted_seconds - saved,
        "speedup": program_speedup(scan, gains),
        "classes": [_class(gain) for gain in gains],
    }


def _class(gain: ClassGain) -> dict[str, Any]:
    first = gain.parts[0]
    own = as_document(first)
    return {
        "class": gain.row.key,
        **{name: own[name] for name in ("job", "outcome", "speedup_vs_eager", "failure")},
        "share_seconds": gain.row.share_seconds,
        "saved_seconds": gain.saved_seconds,
        "calls": gain.row.calls,
        "served_calls": gain.served_calls,
        "configurations": [as_document(part) for part in gain.parts],
    }
