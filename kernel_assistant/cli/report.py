"""The report at the end of a job. Its wording claims no more than was measured."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.cli.text import styled, table
from kernel_assistant.records import FreeWin, Offer, OptimizeResult, Timing
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.reporting.report import facts, read_evaluation
from kernel_assistant.session.reporting.verdicts import verdict
from kernel_assistant.session.reporting.words import (
    against_free_wins,
    interval,
    milliseconds,
    named,
    of_roofline,
    times,
    way_to_take,
)

TITLE = "Free, without a kernel"


def report(result: OptimizeResult) -> list[str]:
    """The report as lines for stdout."""
    evaluation = read_evaluation(result)
    lines = [_headline(result), ""]
    if evaluation is not None and evaluation.timing is not None:
        lines += [f"  {line}" for line in _times(evaluation.timing)] + [""]
    rows = facts(result, evaluation) + _hints(result)
    width = max(len(name) for name, _ in rows)
    lines += [f"  {name.ljust(width)}  {text}" for name, text in rows]
    free = free_wins_table(result)
    return [*lines, "", *free] if free else lines


def _headline(result: OptimizeResult) -> str:
    good = result.offered is Offer.recommended
    text = styled(verdict(result), bold=True, fg="green" if good else "yellow")
    return f"{result.task} on {result.device} ({result.target}): {text}"


def _times(timing: Timing) -> list[str]:
    return table(
        ("", "time", "ours is faster by", "99.9% interval"),
        [
            (
                "eager",
                milliseconds(timing.eager_ms),
                times(timing.speedup_vs_eager),
                interval(timing.speedup_vs_eager_ci),
            ),
            (
                "torch.compile",
                milliseconds(timing.compile_ms),
                times(timing.speedup_vs_compile),
                interval(timing.speedup_vs_compile_ci),
            ),
            ("ours", milliseconds(timing.candidate_ms), of_roofline(timing), ""),
        ],
    )


def _hints(result: OptimizeResult) -> list[tuple[str, str]]:
    job = result.artifacts.get("job", "")
    rows = []
    if "plan.json" in result.artifacts:
        rows.append(("files", str(Path(result.artifacts["plan.json"]).parent)))
    if result.applicable:
        rows.append(("export" if result.session else "apply", way_to_take(result.session, job)))
    elif job and is_unconfirmed(result):
        rows.append(("measure in full", f"kernel-assistant confirm {job}"))
    elif job:
        rows.append(("details", f"kernel-assistant show {job}"))
    return rows


def free_wins_table(result: OptimizeResult) -> list[str]:
    """The table of free wins as lines: heading, rows, notes and conclusion. Empty if no free win was tried."""
    if not result.free_wins:
        return []
    head = ("", "time", "vs eager", "vs compile", "99.9% interval", "error", "write")
    rows = [_row(win) for win in result.free_wins]
    notes = [f"{named(win)}: {win.note}" for win in result.free_wins if win.note]
    title = styled(TITLE, bold=True) + " (each but the first together with torch.compile)"
    return [title, *table(head, rows), *notes, *conclusion(result)]


def conclusion(result: OptimizeResult) -> list[str]:
    """Lines that say whether a free win is as good as the kernel. TF32 is compared even if it changes results too
    much."""
    return [styled(line, fg="yellow") if needless else line for line, needless in against_free_wins(result)]


def _row(win: FreeWin) -> tuple[str, ...]:
    if not win.measured:
        return (named(win), "not measured", "", "", "", "", win.write)
    return (
        named(win),
        milliseconds(win.ms),
        times(win.speedup_vs_eager),
        times(win.speedup_vs_compile),
        interval(win.speedup_vs_compile_ci),
        _error(win),
        win.write,
    )


def _error(win: FreeWin) -> str:
    return "" if win.error_vs_fp64 is None else f"{win.error_vs_fp64:.2g} ({win.error_ratio or 0.0:.2g}× PyTorch's)"
