"""`kernel-assistant scan -- COMMAND`: shows how a program's time divides among its modules, and how much of it
kernels could save."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.text import say_warning, styled, table
from kernel_assistant.records import to_builtins
from kernel_assistant.records.scan import Scan, ScannedClass
from kernel_assistant.session.reporting.words import milliseconds, times
from kernel_assistant.session.scanning.scan import KEPT, ScanRequest, scan_program
from kernel_assistant.session.scanning.scan_compare import ScanComparison, compare, find_earlier
from kernel_assistant.store.scans import ScanStore


@click.command("scan", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.option("--top", type=click.IntRange(min=1), default=10, help="Rows of the table (default: 10).")
@click.option("--repeat", type=click.IntRange(1, 25), default=1, help="Runs, of which the one of median time counts.")
@click.option("--keep", type=click.IntRange(min=1), default=KEPT, help="Classes to keep inputs of (default: 20).")
@click.option("--children", is_flag=True, help="Processes that the program starts are recorded too.")
@click.option("--against", metavar="ID", help="Scan to compare with (default: the last with other kernels applied).")
@json_option
def scan_command(
    command: tuple[str, ...], top: int, repeat: int, keep: int, children: bool, against: str | None, as_json: bool
) -> int:
    """Run COMMAND, such as `python script.py`, `python -m package` or `pytest tests`, and rank its module classes.

    The program runs as it always does; its exit code is ours. Modules and inputs are kept for
    `optimize --scan ID:CLASS`, readable by you only. With --json the program's output goes to stderr.
    """
    settings = settings_for(Path.cwd())
    store = ScanStore(settings.state_dir)
    if against:
        store.scan(against)
    scan = scan_program(ScanRequest(command, repeat, keep, children, quiet=as_json), settings)
    earlier = find_earlier(store, scan, against or "")
    comparison = None if earlier is None else compare(earlier, scan)
    if as_json:
        shown = {**to_builtins(scan), "classes": to_builtins(scan.classes[:top])}
        print(json.dumps({**shown, "comparison": None if comparison is None else _as_json(comparison)}))
        return scan.exit_code
    if scan.exit_code:
        say_warning(f"the program ended with exit code {scan.exit_code}; what it did until then follows")
    lines = ["", *_head(scan), "", *_ranking(scan, top)]
    if comparison is not None:
        lines += ["", *_comparison(comparison)]
    print("\n".join([*lines, "", *_next(scan)]))
    return scan.exit_code


def _head(scan: Scan) -> list[str]:
    title = styled(f"scan {scan.id}: {' '.join(scan.command)}", bold=True)
    whole = (
        f"{_time(scan.wall_seconds)} in all: start-up {_time(scan.startup_seconds)}, "
        f"from the first call of a module to the last {_time(scan.calls_seconds)} ({scan.device}, {scan.clock} clock)"
    )
    own = f"the recorder's own {_time(scan.overhead_seconds)} are left out"
    return [title, whole, f"{_part(scan)}; {own}"] + [f"note: {note}" for note in scan.notes]


def _part(scan: Scan) -> str:
    """A line that says to which part of the program's time the shares and gains refer."""
    inside = f"{scan.modules_seconds / scan.counted_seconds:.0%} of it in modules"
    if not scan.rounds:
        return f"shares are of the time between these calls, {inside}"
    one = _time(scan.counted_seconds / scan.rounds)
    rounds = f"{scan.rounds} round{'s' if scan.rounds > 1 else ''} of {one}"
    return f"shares are of the loop of {scan.loop} after its first round: {rounds}, {inside}"


def _ranking(scan: Scan, top: int) -> list[str]:
    rows = [_cells(rank, row, scan) for rank, row in enumerate(scan.classes[:top], start=1)]
    head = ("", "class", "where", "calls", "share", "with inner", "at its floor", "at half", "")
    left_out = len(scan.classes) - len(rows)
    lines = table(head, rows)
    lines += [f"and {left_out} more (--top {len(scan.classes)})"] if left_out else []
    return [
        *lines,
        "",
        "share: of that time, each moment counted once. at its floor: that time at most so many times as short if only",
        "memory traffic and matrix products of the class remained; at half: if the class took half its time.",
    ]


def _cells(rank: int, row: ScannedClass, scan: Scan) -> tuple[str, ...]:
    counted = scan.counted_seconds
    return (
        str(rank),
        row.name,
        _where(row, scan),
        str(row.calls),
        f"{row.share_seconds / counted:.1%}",
        f"{row.inclusive_seconds / counted:.1%}",
        f"≤ {times(row.speedup_at_floor)}",
        times(row.speedup_at_double),
        _remarks(row),
    )


def _where(row: ScannedClass, scan: Scan) -> str:
    if row.installed or not row.path:
        return row.module
    path = os.path.relpath(row.path, scan.folder)
    return f"{row.path if path.startswith('..') else path}:{row.line}"


def _remarks(row: ScannedClass) -> str:
    remarks = [
        f"{seconds / row.share_seconds:.0%} under {reason}: kernels do not run there"
        for reason, seconds in row.unserved_seconds.items()
        if seconds > 0.005 * row.share_seconds
    ]
    if row.products_seconds > 0.005 * row.share_seconds:
        remarks.append(f"{row.products_seconds / row.share_seconds:.0%} in products")
    if row.more:
        remarks.append(f"{len(row.more) + 1} configurations, #1 to #{len(row.more) + 1}")
    if row.objects and not row.problem:
        remarks.append(f"some calls are left out: {', '.join(row.objects)}")
    if row.problem:
        remarks.append(row.problem)
    return "; ".join(remarks)


def _comparison(comparison: ScanComparison) -> list[str]:
    lines = [styled(f"Against scan {comparison.before}", bold=True)]
    lines += [f"applied since: {name}" for name in comparison.applied]
    lines += [f"taken back since: {name}" for name in comparison.removed]
    whole = (comparison.before_wall_seconds, comparison.after_wall_seconds)
    counted = (comparison.before_seconds, comparison.after_seconds)
    rows: list[tuple[str, ...]] = [
        (name, _time(before), _time(after), times(before / after), "", "")
        for name, (before, after) in (("without start-up and warm-up", counted), ("whole program", whole))
    ]
    rows += [
        (
            change.name,
            _time(change.before_seconds),
            _time(change.after_seconds),
            times(change.before_seconds / change.after_seconds if change.after_seconds > 0 else None),
            f"{_time(change.before_first_seconds)} → {_time(change.after_first_seconds)}",
            "applied" if change.applied else "",
        )
        for change in comparison.classes[:10]
    ]
    return [*lines, *table(("", "before", "after", "faster by", "first calls", ""), rows), _FIRST, comparison.note]


#: A note below the table that compares two scans.
_FIRST = "first calls: of each kind, not counted for the class: they load kernels and choose algorithms, once a process"


def _as_json(comparison: ScanComparison) -> dict[str, object]:
    return {**to_builtins(comparison), "speedup": comparison.speedup}


def _next(scan: Scan) -> list[str]:
    row = next((row for row in scan.classes if row.folder and not row.problem and row.saved_seconds > 0), None)
    if row is None:
        return []
    return [f"next: kernel-assistant optimize --scan {scan.spec(row)}"]


def _time(seconds: float) -> str:
    return milliseconds(seconds * 1e3)
