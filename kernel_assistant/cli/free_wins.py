"""The table of changes that need no kernel, and how the kernel compares with them."""

from __future__ import annotations

from kernel_assistant.cli.text import styled, table
from kernel_assistant.records import FreeWin, OptimizeResult
from kernel_assistant.session.reporting.words import against_free_wins, interval, milliseconds, named, times

TITLE = "Free, without a kernel"


def free_wins_table(result: OptimizeResult) -> list[str]:
    """Heading, table and conclusion as lines; an empty list if no change was tried."""
    if not result.free_wins:
        return []
    head = ("", "time", "vs eager", "vs compile", "99.9% interval", "error", "write")
    rows = [_row(win) for win in result.free_wins]
    notes = [f"{named(win)}: {win.note}" for win in result.free_wins if win.note]
    title = styled(TITLE, bold=True) + " (each but the first together with torch.compile)"
    return [title, *table(head, rows), *notes, *conclusion(result)]


def conclusion(result: OptimizeResult) -> list[str]:
    """Whether a free win is as good as the kernel; the comparison with TF32 is made even where TF32 changes results."""
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
