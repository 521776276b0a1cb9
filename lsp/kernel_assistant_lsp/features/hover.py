"""Hovers: for a line, its time and its kernels; for a class, its last result with the confirmed measurements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from lsprotocol.types import Hover, MarkupContent, MarkupKind, Position

from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.records import Best, Gain, JobOutcome, Offer
from kernel_assistant.records.free_win import best_free_win
from kernel_assistant.records.line_profile import LineProfile, LineTime
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.session.reporting.verdicts import verdicts
from kernel_assistant.session.reporting.words import counted, of_error
from kernel_assistant.store import JobKind, JobRow, JobState
from kernel_assistant_lsp.features.places import is_edited, rows_at
from kernel_assistant_lsp.features.words import amount, duration, interval, share
from kernel_assistant_lsp.text.snapshot import Snapshot

_CLASS = re.compile(r"[ \t]*class[ \t]+(\w+)")
_MOST_KERNELS = 5
_OUTCOMES = {
    JobOutcome.no_measurable_gain: "no gain was confirmed",
    JobOutcome.at_limit: "torch.compile reaches what the device allows",
    JobOutcome.no_candidate: "no correct candidate was found",
    JobOutcome.inconclusive: "not clear whether it gains, or other work disturbed the measurement",
    JobOutcome.cancelled: "cancelled",
    JobOutcome.failed: "failed",
}


def at(
    snapshot: Snapshot,
    position: Position,
    profile: LineProfile | None,
    history: Sequence[JobRow],
    state: ClassState | None = None,
) -> Hover | None:
    """Return the hover at `position`, None if there is none. On a `class` statement it shows the newest job of the
    class (`history`: jobs of the file, newest first) and its fallbacks (`state`); on a profiled line it shows the
    line's time."""
    named = _CLASS.match(snapshot.line(position.line))
    if named:
        text = about_class(snapshot, named[1], history, state)
    elif profile is not None and (row := rows_at(snapshot, profile).get(position.line)) is not None:
        text = about_line(row, profile, edited=is_edited(snapshot, profile))
    else:
        return None
    if not text:
        return None
    return Hover(MarkupContent(MarkupKind.Markdown, text), snapshot.lines(position.line + 1, position.line + 1))


def about_line(row: LineTime, profile: LineProfile, *, edited: bool) -> str:
    """Return Markdown about one profiled line."""
    seconds = row.ms * 1e-3
    lines = [f"**{duration(row.ms)}**, {share(row.share)} of {duration(profile.ms)} a forward"]
    if row.calls > 1:
        lines[0] += f", {row.calls:g} times"
    moved = row.read_bytes + row.written_bytes
    if moved and seconds:
        text = f"memory: reads {amount(row.read_bytes, 'B')}, writes {amount(row.written_bytes, 'B')}"
        text += f", {amount(moved / seconds, 'B/s')} as one pass"
        limit = "" if row.roofline is None else f": **{row.roofline:.0%}** of what this device's memory allows"
        lines.append(text + limit)
    if row.flops and seconds:
        lines.append(f"products: {amount(row.flops, 'FLOP')}, {amount(row.flops / seconds, 'FLOP/s')}")
    if profile.target == "cuda" and row.launch_bound:
        lines.append("launch-bound: kernels ran for less than half of this time")
    if row.kernels:
        what = "kernel" if profile.target == "cuda" else "operator"
        lines.append(f"| {what} | calls | time |\n|---|--:|--:|")
        rows = (f"| `{one.plain}` | {one.calls:g} | {duration(one.ms)} |" for one in row.kernels[:_MOST_KERNELS])
        lines[-1] += "\n" + "\n".join(rows)
    stale = "; measured before the last edit of the class" if edited else ""
    lines.append(f"*eager PyTorch {profile.torch} on {profile.device}, median of {profile.runs} runs{stale}*")
    return "\n\n".join(lines)


def about_class(snapshot: Snapshot, name: str, history: Sequence[JobRow], state: ClassState | None) -> str:
    """Return Markdown about a class, "" if there is neither a result nor a count of calls."""
    parts = []
    row = next((one for one in history if _is_result(one, name)), None)
    if row is not None:
        parts += _result(row)
        if not is_same_class(snapshot.text, row.task.content, name):
            parts.append(f"The class was edited since: the figures are of the text that job {row.id} ran.")
    if state is not None and state.kernel_calls is not None:
        fell = sum(state.fallbacks.values())
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(state.fallbacks.items()))
        why = f" ({reasons})" if reasons else ""
        parts.append(f"Applied: the kernels served {state.kernel_calls} calls, the original {fell}{why}.")
    return "\n\n".join(parts)


def about_job(row: JobRow) -> list[str]:
    """Return paragraphs of Markdown about one job."""
    if row.result is None:
        return [f"**{row.task.class_name}**: job {row.id} is {row.state.value}{f': {row.error}' if row.error else ''}"]
    return _result(row)


def _is_result(row: JobRow, name: str) -> bool:
    ended = row.state in (JobState.done, JobState.cancelled) and row.result is not None
    return ended and row.options.kind is JobKind.optimize and row.task.class_name == name


def _result(row: JobRow) -> list[str]:
    assert row.result is not None
    result, best = row.result, row.result.best
    when = datetime.fromtimestamp(row.ended, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    where = f"*job {row.id}, {when}, {result.device}, {counted(result.evaluations)}*"
    if result.offered is not Offer.recommended or best is None:
        paragraphs = [f"**{row.task.class_name}**: {_OUTCOMES.get(result.outcome, result.outcome.value)}"]
        paragraphs += [f"{name}: {words}" for name, words in verdicts(result)]
    else:
        paragraphs = [f"**{row.task.class_name}**: {_speed(best)}", _accuracy(best)]
        beaten = all(gain is Gain.faster for gain in result.verdicts.values() if gain is not Gain.unknown)
        paragraphs += [] if beaten else [f"{name}: {words}" for name, words in verdicts(result)]
        if best.residual:
            ours = f"{share(best.share_in_our_kernels)} of the time is in generated kernels"
            paragraphs.append(f"partial: {ours}; PyTorch still runs {', '.join(f'`{one}`' for one in best.residual)}")
    free = best_free_win(result.free_wins)
    if free is not None:
        gain = f"{free.speedup_vs_compile:.2f}× torch.compile" if free.speedup_vs_compile else ""
        paragraphs.append(f"without a kernel: `{free.write}` is {gain}{interval(free.speedup_vs_compile_ci)}")
    return [*paragraphs, where]


def _speed(best: Best) -> str:
    eager = f"{best.speedup_vs_eager:.2f}× vs eager"
    if best.speedup_vs_compile is None:
        return f"verified, {eager} (torch.compile could not be measured)"
    compiled = f"{best.speedup_vs_compile:.2f}× vs torch.compile{interval(best.speedup_vs_compile_ci)}"
    return f"verified, **{compiled}**, {eager}"


def _accuracy(best: Best) -> str:
    roofline = f"; {best.roofline:.0%} of the roofline" if best.roofline else ""
    error = of_error(best.relative_error, best.error_vs_fp64)
    return f"error {error}, {best.error_ratio:.2g} times PyTorch's own{roofline}"
