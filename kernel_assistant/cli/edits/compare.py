"""`kernel-assistant compare [SCAN]` measures the time of a scanned program without and with its applied kernels.
`kernel-assistant counters` counts how often applied kernels ran in a program, and why they did not."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import click

from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.text import say_warning, styled, table
from kernel_assistant.errors import EXIT_OK
from kernel_assistant.records.scan import Scan
from kernel_assistant.session.reporting.call_counts import CallCounts, run_counted
from kernel_assistant.session.reporting.words import milliseconds, times
from kernel_assistant.session.scanning.program_times import (
    CONFIDENCE,
    Interval,
    ProgramTimes,
    TimedRun,
    measure_program,
)
from kernel_assistant.store.scans import ScanStore

#: Pairs of runs: the fewest whose interval has 95% confidence.
PAIRS = 6

repeat_option = click.option(
    "--repeat", type=click.IntRange(1, 50), default=PAIRS, help=f"Pairs of runs (default: {PAIRS})."
)


@click.command("compare")
@click.argument("scan", metavar="[SCAN]", default="last")
@repeat_option
@json_option
def compare_command(scan: str, repeat: int, as_json: bool) -> int:
    """Run the program of SCAN (its number or `last`) without and with the applied kernels, and compare the times.

    Both run once in each pair, in the folder and with the command of the scan; their output is thrown away. The calls
    of modules are timed, without start-up and the first round of a loop. Nothing is changed on disk: the kernels are
    switched off for a run.
    """
    settings = settings_for(Path.cwd())
    return compare_program(ScanStore(settings.state_dir).scan(scan), repeat, as_json=as_json)


def compare_program(scan: Scan, pairs: int, *, as_json: bool) -> int:
    measured = measure_program(scan, pairs, _say_pair)
    if measured.difference:
        say_warning(f"{measured.difference}; the times may be of different work")
    print(json.dumps(_document(measured)) if as_json else "\n".join(_report(measured)), flush=True)
    return EXIT_OK


def _say_pair(number: int, without: TimedRun, with_kernels: TimedRun) -> None:
    before, after = (milliseconds(run.seconds * 1e3) for run in (without, with_kernels))
    print(f"pair {number}: {before} without kernels, {after} with them", file=sys.stderr, flush=True)


def _report(measured: ProgramTimes) -> list[str]:
    scan, last = measured.scan, measured.with_kernels[-1].recording
    part = f"a round of {last.loop}" if last.rounds else "first call to last"
    rows = [
        _row(part, [run.seconds for run in measured.without], [run.seconds for run in measured.with_kernels]),
        _row("whole program", [run.wall for run in measured.without], [run.wall for run in measured.with_kernels]),
    ]
    bounds = (measured.speedup, measured.whole_speedup)
    return [
        styled(f"scan {scan.id}: {' '.join(scan.command)}", bold=True),
        *table(
            ("", "without", "with kernels", "as fast", "interval"),
            [(*row, times(one.median), _words(one)) for row, one in zip(rows, bounds, strict=True)],
        ),
        _note(measured),
        "",
        *table(("class", "kernels ran", "original ran", "because of"), [cells(one) for one in measured.counts]),
    ]


def _row(name: str, without: list[float], with_kernels: list[float]) -> tuple[str, str, str]:
    before, after = (milliseconds(statistics.median(values) * 1e3) for values in (without, with_kernels))
    return (name, before, after)


def _words(one: Interval) -> str:
    return f"{one.low:.2f} to {one.high:.2f}"


def _note(measured: ProgramTimes) -> str:
    speedup = measured.speedup
    pairs = len(measured.without)
    how = f"medians of {pairs} pair{'s' if pairs > 1 else ''}, intervals of {speedup.confidence:.0%}"
    if speedup.confidence < CONFIDENCE:
        return f"{how}: too few for a verdict; --repeat {PAIRS} gives more than {CONFIDENCE:.0%}"
    verdict = "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else "no difference is shown"
    return f"{verdict}; {how}"


def _document(measured: ProgramTimes) -> dict[str, object]:
    last = measured.with_kernels[-1].recording
    return {
        "scan": measured.scan.id,
        "command": list(measured.scan.command),
        "loop": last.loop,
        "rounds": last.rounds,
        "without_seconds": [run.seconds for run in measured.without],
        "with_seconds": [run.seconds for run in measured.with_kernels],
        "without_wall_seconds": [run.wall for run in measured.without],
        "with_wall_seconds": [run.wall for run in measured.with_kernels],
        "speedup": _numbers(measured.speedup),
        "whole_speedup": _numbers(measured.whole_speedup),
        "difference": measured.difference,
        "classes": [document(one) for one in measured.counts],
    }


def _numbers(one: Interval) -> dict[str, float]:
    return {"median": one.median, "low": one.low, "high": one.high, "confidence": one.confidence}


@click.command("counters", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@json_option
def counters_command(command: tuple[str, ...], as_json: bool) -> int:
    """Run COMMAND, such as `python script.py` or `pytest tests`, and say how often applied kernels ran in all of its
    processes, how often the original did, and for which reasons.

    The program runs as it always does; its exit code is ours. With --json its output goes to stderr.
    """
    exit_code, counts = run_counted(command, quiet=as_json)
    if as_json:
        print(json.dumps({"exit_code": exit_code, "classes": [document(one) for one in counts]}))
        return exit_code
    if exit_code:
        say_warning(f"the program ended with exit code {exit_code}; what it did until then follows")
    if counts:
        print(
            "\n".join(
                ["", *table(("class", "kernels ran", "original ran", "because of"), [cells(one) for one in counts])]
            )
        )
    else:
        print("\nno class with applied kernels was called")
    return exit_code


def cells(one: CallCounts) -> tuple[str, ...]:
    label = f"{one.package.name}:{one.class_name}"
    if one.unused:
        return (label, "never", "always", one.unused)
    reasons = sorted(one.fallbacks.items(), key=lambda item: -item[1])
    words = ", ".join(f"{reason} ({count})" for reason, count in reasons)
    return (label, str(one.kernel), str(sum(one.fallbacks.values())), words)


def document(one: CallCounts) -> dict[str, object]:
    return {
        "package": str(one.package),
        "class": one.class_name,
        "kernel": one.kernel,
        "fallbacks": one.fallbacks,
        "unused": one.unused,
    }
