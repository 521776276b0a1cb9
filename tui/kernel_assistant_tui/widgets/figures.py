"""Formats the measurements of a job as lines, in the same words as the command line's report. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from kernel_assistant.records import Offer, Timing
from kernel_assistant.session.reporting.verdicts import verdict
from kernel_assistant.session.reporting.words import (
    NOT_CONFIRMED,
    against_free_wins,
    interval,
    milliseconds,
    named,
    of_accuracy,
    of_baseline,
    of_free_win,
    of_share,
    of_spending,
    times,
)
from kernel_assistant.store import JobState
from kernel_assistant_tui.view.search_view import SearchView, Turn
from kernel_assistant_tui.widgets.chart import Series, chart
from kernel_assistant_tui.widgets.glyphs import clean, glyph, utf8

_MUTED, _TITLE = "$text 60%", "bold $text-primary"
NO_CEILING = "the ceilings of this device are not known"
EMPTY = "No result yet. Choose a module and start."
NOTHING_RIGHT = "nothing right so far"
#: Width in cells of the table of times with full names.
_TIMES = 62


def headline(view: SearchView) -> Content:
    """Return one line about the outcome of the job so far."""
    if not view.job:
        return _line(EMPTY, _MUTED)
    if view.failure is not None:
        return _line(f"failed: {view.failure.cause}", "bold $text-error")
    if view.result is not None:
        good = view.result.offered is Offer.recommended
        words = verdict(view.result)
        return _line(words, "bold $text-success" if good else "bold $text-warning")
    if view.best is not None and not view.best.confirmed:
        return _line(NOT_CONFIRMED, "$text-warning")
    if view.best is not None:
        return _line("confirmed on fresh samples", "bold $text-success")
    if view.state is JobState.queued:
        return _line("waiting for its turn", _MUTED)
    return _line(NOTHING_RIGHT if view.candidates else "nothing was tried yet", _MUTED)


def best_lines(view: SearchView, facts: Sequence[tuple[str, str]], width: int) -> list[Content]:
    """Returns all lines of the tab "Best". `facts` are (label, text) about the result (`facts` of
    session/reporting/report.py)."""
    lines = [headline(view)]
    if view.failure is not None and view.failure.next_step:
        lines.append(_line(f"next: {view.failure.next_step}"))
    timing = view.timing
    if timing is not None:
        lines += [Content(""), *_times(timing, width)]
    elif view.baseline is not None:
        lines += [_line(""), _line(of_baseline(view.baseline))]
    lines += _titled("Speed-up over turns", speedups(view.turns, width))
    lines += _titled("Share of the roofline", roofline(view, width))
    lines += _titled("Found", _rows([*_of_best(view), *facts], width))
    return lines + _titled("Free, without a kernel", _free(view))


def speedups(turns: Sequence[Turn], width: int) -> list[Content]:
    """Return a chart with the best speed-up up to each turn, as the search measured it."""
    compiled = [(float(turn.number), turn.vs_compile) for turn in turns if turn.vs_compile is not None]
    eager = [(float(turn.number), turn.vs_eager) for turn in turns if turn.vs_eager is not None]
    if not eager:
        return [_line(NOTHING_RIGHT, _MUTED)] if turns else []
    if len(eager) == 1:
        turn = turns[-1]
        against = [f"{times(turn.vs_eager)} eager"]
        against += [f"{times(turn.vs_compile)} torch.compile"] if turn.vs_compile is not None else []
        return [_line(f"one turn with a right candidate: {', '.join(against)}")]
    series = [
        Series("over eager", eager, "$text-primary", steps=True),
        Series("over torch.compile", compiled, "$text-success", steps=True),
    ]
    return chart(series, width, 11, braille=utf8(), label=lambda value: clean(times(value)), across="turns", level=1.0)


def roofline(view: SearchView, width: int) -> list[Content]:
    """Returns a bar for each of eager PyTorch, torch.compile and our kernels. Its length is the lower bound of the time
    (roofline) divided by the measured time."""
    timing, baseline = view.timing, view.baseline
    if timing is None and baseline is None:
        return []
    floor = (timing.floor_ms if timing is not None else 0.0) or (baseline.floor_ms if baseline is not None else 0.0)
    if not floor:
        return [_line(NO_CEILING, _MUTED)]
    known: list[tuple[str, float | None]] = [("eager", _of(timing, baseline, "eager_ms"))]
    known += [("torch.compile", _of(timing, baseline, "compile_ms"))]
    known += [("ours", timing.candidate_ms)] if timing is not None else []
    room = max(8, min(60, width - 22))
    return [_bar(name, ms, floor, room, ours=name == "ours") for name, ms in known]


def _of(timing: Timing | None, baseline: object, name: str) -> float | None:
    milliseconds: float | None = getattr(timing if timing is not None else baseline, name)
    return milliseconds


def _bar(name: str, ms: float | None, floor: float, room: int, *, ours: bool) -> Content:
    if ms is None:
        return Content.assemble(f"{name:<14}", ("not measured", _MUTED))
    share = min(floor / ms, 1.0)
    full = round(share * room)
    bar = glyph("█", "#") * full, "$success" if ours else "$primary"
    rest = glyph("░", ".") * (room - full), _MUTED
    return Content.assemble(f"{name:<14}", bar, rest, f" {floor / ms:.0%}")


def _times(timing: Timing, width: int) -> list[Content]:
    narrow = width < _TIMES
    eager = f"{times(timing.speedup_vs_eager)} {interval(timing.speedup_vs_eager_ci)}"
    compiled = f"{times(timing.speedup_vs_compile)} {interval(timing.speedup_vs_compile_ci)}"
    rows = [
        ("", "time", "ours faster, 99.9%" if narrow else "ours is faster by (99.9% interval)"),
        ("eager", milliseconds(timing.eager_ms), eager),
        ("compile" if narrow else "torch.compile", milliseconds(timing.compile_ms), compiled),
        ("ours", milliseconds(timing.candidate_ms), ""),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    gap = " " if narrow else "  "
    lines = [gap.join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]
    styles = (_MUTED, "", "", "bold $text-success")
    return [_line(text, style) for text, style in zip(lines, styles, strict=True)]


def _of_best(view: SearchView) -> list[tuple[str, str]]:
    """Returns (label, text) rows about the best candidate while the job runs. At its end there are none, because
    `facts` has the same information then."""
    seen = view.shown
    if view.result is not None:
        return []
    spent = of_spending(view.spent)
    rest = [("candidates", view.counts)] if view.candidates else []
    rest += [("model", spent)] if spent else []
    if seen is None:
        return rest
    evaluation = seen.evaluation
    rows = [("candidate", f"{seen.candidate[:8]} of turn {seen.turn} by the {seen.origin}")]
    rows += [("schedule", seen.schedule)] if seen.schedule else []
    if evaluation.accuracy is not None:
        rows.append(("error", of_accuracy(evaluation.accuracy, evaluation.precision)))
        rows.append(("in our kernels", of_share(evaluation)))
    if evaluation.timing is not None and evaluation.timing.warning:
        rows.append(("warning", evaluation.timing.warning))
    return [*rows, *rest]


def _rows(rows: Sequence[tuple[str, str]], width: int) -> list[Content]:
    size = max((len(name) for name, _ in rows), default=0)
    lines: list[Content] = []
    for name, words in rows:
        first = Content.assemble((f"{name:<{size}}  ", _MUTED))
        body = Content(clean(words)).wrap(max(12, width - size - 2))
        lines += [(first if index == 0 else Content(" " * (size + 2))) + part for index, part in enumerate(body)]
    return lines


def _free(view: SearchView) -> list[Content]:
    wins = view.result.free_wins if view.result is not None else view.free_wins
    lines = [Content.assemble(clean(of_free_win(win)), (f"  {clean(win.write)}", _MUTED)) for win in wins]
    lines += [_line(f"{named(win)}: {win.note}", _MUTED) for win in wins if win.note and win.passes]
    if view.result is not None:
        conclusions = against_free_wins(view.result)
        lines += [_line(words, "$text-warning" if needless else "") for words, needless in conclusions]
    return lines


def _titled(title: str, lines: Sequence[Content]) -> list[Content]:
    return [Content(""), _line(title, _TITLE), *lines] if lines else []


def _line(text: str, style: str = "") -> Content:
    return Content.styled(clean(text), style) if style else Content(clean(text))
