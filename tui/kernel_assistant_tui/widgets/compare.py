"""Compares two candidates: their measurements side by side, then the diff of their sources. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content

from kernel_assistant.records import Evaluation
from kernel_assistant.session.reporting.words import interval, milliseconds, of_roofline, of_share, times
from kernel_assistant_tui.view.search_view import JudgedCandidate
from kernel_assistant_tui.widgets.code import diff_lines, sources_diff
from kernel_assistant_tui.widgets.glyphs import clean
from kernel_assistant_tui.widgets.line_view import StyledText

NO_SOURCE = "its source is not here yet: it comes when its turn ends, from another machine when the job ends"


def compared(
    first: JudgedCandidate, second: JudgedCandidate, sources: Mapping[str, Mapping[str, str]], width: int
) -> list[Content | StyledText]:
    """Return the lines of the comparison. `sources` maps a candidate to its files (name → text)."""
    size = max(12, (width - 16) // 2)
    lines: list[Content | StyledText] = [
        _row("", first.candidate[:8], second.candidate[:8], size, "bold $text-primary")
    ]
    for name, left, right in _rows(first, second):
        lines.append(_row(name, left, right, size))
    lines.append(Content(""))
    before, after = (sources.get(one.candidate, {}) for one in (first, second))
    for one, files in ((first, before), (second, after)):
        if not files:
            lines.append(StyledText(f"{one.candidate[:8]}: {NO_SOURCE}", "$text-warning"))
    if before and after:
        diff = sources_diff(before, after)
        lines += diff_lines(diff) if diff else [StyledText("the sources are the same: plan or launches differ", "")]
    return lines


def _rows(first: JudgedCandidate, second: JudgedCandidate) -> list[tuple[str, str, str]]:
    names = (
        "outcome",
        "time",
        "over eager",
        "",
        "over compile",
        "",
        "roofline",
        "error",
        "PyTorch's",
        "ours/PyTorch's",
        "in our kernels",
        "registers",
        "turn, origin",
        "schedule",
    )
    return [
        (name, left, right)
        for name, left, right in zip(names, _figures(first), _figures(second), strict=True)
        if left or right
    ]


def _figures(seen: JudgedCandidate) -> tuple[str, ...]:
    evaluation = seen.evaluation
    timing, accuracy = evaluation.timing, evaluation.accuracy
    return (
        f"{evaluation.outcome.value.replace('_', ' ')} ({evaluation.tier.value})",
        milliseconds(timing.candidate_ms) if timing else "",
        times(timing.speedup_vs_eager) if timing else "",
        interval(timing.speedup_vs_eager_ci) if timing else "",
        times(timing.speedup_vs_compile) if timing else "",
        interval(timing.speedup_vs_compile_ci) if timing else "",
        of_roofline(timing) if timing else "",
        f"{accuracy.error:.2g}" if accuracy else "",
        f"{accuracy.reference_error:.2g}" if accuracy else "",
        f"{accuracy.error_ratio:.2g}" if accuracy else "",
        of_share(evaluation) if evaluation.correct else "",
        _registers(evaluation),
        f"{seen.turn}, {seen.origin}",
        seen.schedule,
    )


def _registers(evaluation: Evaluation) -> str:
    return " ".join(str(one.registers) for one in evaluation.resources if one.registers)


def _row(name: str, left: str, right: str, size: int, style: str = "") -> Content:
    cells = [_fit(left, size), _fit(right, size)]
    return Content.assemble((f"{name:<15}", "$text 60%"), *((cell, style) for cell in cells))


def _fit(text: str, size: int) -> str:
    text = clean(text)
    return f"{text if len(text) < size else text[: size - 2] + '~':<{size}}"
