"""The table of what costs no kernel, and how the kernel stands beside it."""

from __future__ import annotations

from kernel_assistant.cli.text import interval, milliseconds, styled, table, times
from kernel_assistant.records import FreeWin, OptimizeResult
from kernel_assistant.records.free_win import COMPILE, best_free_win

TITLE = "Free, without a kernel"


def free_wins_table(result: OptimizeResult) -> list[str]:
    """Heading, table and conclusion; nothing where nothing was tried."""
    if not result.free_wins:
        return []
    head = ("", "time", "vs eager", "vs compile", "99.9% interval", "error", "write")
    rows = [_row(win) for win in result.free_wins]
    notes = [f"{_words(win)}: {win.note}" for win in result.free_wins if win.note]
    title = styled(TITLE, bold=True) + " (each but the first together with torch.compile)"
    return [title, *table(head, rows), *notes, *conclusion(result)]


def conclusion(result: OptimizeResult) -> list[str]:
    """Whether a free change is as good as the kernel; the kernel beside TF32 also where that changes results."""
    best = best_free_win(result.free_wins)
    lines = [_beside(result, best)] if best is not None else []
    tf32 = [win for win in result.free_wins if win.name == "tf32" and win.gains and not win.passes]
    return lines + [_beside(result, win) for win in tf32]


def line(win: FreeWin) -> str:
    """One win for the progress lines."""
    if not win.measured:
        return f"{_words(win)} {win.note}"
    gain = f"{times(win.speedup_vs_eager)} eager" if win.name == COMPILE else f"{times(win.speedup_vs_compile)} compile"
    return f"{_words(win)} {gain}" + ("" if win.passes else f", {win.note}")


def _row(win: FreeWin) -> tuple[str, ...]:
    if not win.measured:
        return (_words(win), "not measured", "", "", "", "", win.write)
    return (
        _words(win),
        milliseconds(win.ms),
        times(win.speedup_vs_eager),
        times(win.speedup_vs_compile),
        interval(win.speedup_vs_compile_ci),
        _error(win),
        win.write,
    )


def _beside(result: OptimizeResult, win: FreeWin) -> str:
    """The kernel against one free change; both over plain torch.compile, in different rounds."""
    free = win.speedup_vs_compile or 0.0
    what = f"{_words(win)} ({'' if win.passes else 'changes results, '}{times(free)} torch.compile)"
    kernel = result.best.speedup_vs_compile if result.best is not None else None
    if kernel is None:
        return f"best without a kernel: {what}"
    if free >= kernel:
        return styled(f"{what} needs no kernel and is no slower than the one found here ({times(kernel)})", fg="yellow")
    return f"the kernel ({times(kernel)} torch.compile) is about {times(kernel / free)} as fast as {what}"


def _error(win: FreeWin) -> str:
    return "" if win.error_vs_fp64 is None else f"{win.error_vs_fp64:.2g} ({win.error_ratio or 0.0:.2g}× PyTorch's)"


def _words(win: FreeWin) -> str:
    return win.name.replace("_", " ")
