"""`kernel-assistant optimize --scan ID --top N`: a job for each of the classes that are worth most to a program."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.text import say_warning, table
from kernel_assistant.cli.watch import watch
from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_OK, Cancelled, KernelAssistantError, UsageError
from kernel_assistant.records import JobOutcome
from kernel_assistant.records.scan import Scan, ScannedClass
from kernel_assistant.session.client import Client
from kernel_assistant.session.prepare import prepare_scanned
from kernel_assistant.session.reporting.words import milliseconds, times
from kernel_assistant.session.scanning.program_gain import ClassGain, program_speedup, worth_most
from kernel_assistant.store.scans import ScanStore


def optimize_top(scan_id: str, count: int, settings: Settings, *, as_json: bool, words: bool) -> int:
    """Queue the jobs, watch one after another, and say what the whole program gains; Ctrl-C cancels all of them."""
    if ":" in scan_id or settings.host:
        raise UsageError(
            "--top takes the classes of a scan on this machine", "kernel-assistant optimize --scan last --top 3"
        )
    scan = ScanStore(settings.state_dir).scan(scan_id)
    client = Client(settings)
    queued = [(row, _submit(client, scan, row, settings)) for row in worth_most(scan, count)]
    if settings.detach:
        jobs = [job for _, job in queued]
        print(json.dumps({"jobs": jobs}) if as_json else f"jobs {', '.join(jobs)}: kernel-assistant jobs lists them")
        return EXIT_OK
    gains: list[ClassGain] = []
    for index, (row, job) in enumerate(queued):
        gain = _watched(client, row, job, silent=as_json, words=words)
        gains.append(gain)
        if gain.result is not None and gain.result.outcome is JobOutcome.cancelled:
            for _, waiting in queued[index + 1 :]:
                client.cancel(waiting)
            return EXIT_CANCELLED
    print(json.dumps(_document(scan, gains)) if as_json else "\n".join(_report(scan, gains)), flush=True)
    return EXIT_OK


def _submit(client: Client, scan: Scan, row: ScannedClass, settings: Settings) -> str:
    task, options = prepare_scanned(f"{scan.id}:{row.key}", settings)
    return str(client.submit(task, msgspec.structs.replace(options, free_wins=settings.free_wins))["job"])


def _watched(client: Client, row: ScannedClass, job: str, *, silent: bool, words: bool) -> ClassGain:
    """Watches the job of one class and returns its gain. If the job fails, `failure` of the result says why, and the
    other jobs go on.
    """
    progress = choose_progress(f"job {job}: {row.name}", silent=silent, words=words)
    try:
        return ClassGain(row, job, watch(client, client.attach(job), progress, cancel_on_interrupt=True))
    except Cancelled:
        raise
    except KernelAssistantError as error:
        say_warning(f"{row.name}: {error.cause}; {error.next_step}")
        return ClassGain(row, job, failure=error.cause)


def _report(scan: Scan, gains: list[ClassGain]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (gain.row.name, gain.job, _outcome(gain), _speedup(gain), _saved(gain, scan)) for gain in gains
    ]
    whole = sum(gain.saved_seconds for gain in gains)
    left = milliseconds((scan.wall_seconds - whole) * 1e3)
    faster = f"{milliseconds(scan.wall_seconds * 1e3)} → {left}, {times(program_speedup(scan, gains))} as fast"
    applied = [f"apply   kernel-assistant apply {gain.job}" for gain in gains if gain.saved_seconds]
    return [
        *table(("class", "job", "outcome", "eager", "of the program"), rows),
        "",
        f"the program of scan {scan.id}: {faster}, by the times that the scan saw",
        *applied,
        *(["after it: the same scan again measures the program"] if applied else []),
    ]


def _outcome(gain: ClassGain) -> str:
    return "failed" if gain.result is None else gain.result.outcome.value.replace("_", " ")


def _speedup(gain: ClassGain) -> str:
    best = None if gain.result is None else gain.result.best
    return times(None if best is None else best.speedup_vs_eager)


def _saved(gain: ClassGain, scan: Scan) -> str:
    share = f"{gain.row.share_seconds / scan.wall_seconds:.1%}"
    return f"{share}, {gain.saved_seconds / scan.wall_seconds:.1%} saved" if gain.saved_seconds else share


def _document(scan: Scan, gains: list[ClassGain]) -> dict[str, Any]:
    saved = sum(gain.saved_seconds for gain in gains)
    return {
        "scan": scan.id,
        "before_seconds": scan.wall_seconds,
        "after_seconds": scan.wall_seconds - saved,
        "speedup": program_speedup(scan, gains),
        "classes": [
            {
                "class": gain.row.key,
                "job": gain.job,
                "outcome": "failed" if gain.result is None else gain.result.outcome.value,
                "speedup_vs_eager": gain.result.best.speedup_vs_eager if gain.result and gain.result.best else None,
                "share_seconds": gain.row.share_seconds,
                "saved_seconds": gain.saved_seconds,
                "failure": gain.failure,
            }
            for gain in gains
        ],
    }
