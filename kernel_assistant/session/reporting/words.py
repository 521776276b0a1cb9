"""Texts about measurements and results, for all front ends. They claim no more than was measured."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernel_assistant.events import BaselineMeasured, BestImproved
from kernel_assistant.records import Accuracy, Evaluation, FreeWin, OptimizeResult, Spending, Timing
from kernel_assistant.records.free_win import COMPILE, best_free_win

#: Schedules of more parts, and calls of one operator beyond this number, are counted instead of listed.
MOST_PARTS, MOST_CALLS = 6, 3
#: Note for figures from a search that are not confirmed.
NOT_CONFIRMED = "figures of the search, not confirmed on fresh samples"


def milliseconds(value: float | None) -> str:
    """Formats a time in milliseconds with three significant digits, in µs, ms or s."""
    if value is None:
        return "not measured"
    if value < 0.1:
        return f"{value * 1e3:.3g} µs"
    return f"{value / 1e3:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def ago(moment: float) -> str:
    """Describes a time in seconds since the epoch relative to now, such as `5 min ago`; "" for 0."""
    if not moment:
        return ""
    seconds = max(0.0, time.time() - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"({bounds[0]:.2f}–{bounds[1]:.2f})"


def time_left(ends: float, now: float) -> str:
    """Describes the time left until `ends`, when a job's budget is used up; "" if `ends` is 0 (no budget). A job may
    run a little longer than its budget."""
    if not ends:
        return ""
    return f"{ends - now:.0f} s left" if ends > now else "over its budget"


def of_baseline(event: BaselineMeasured) -> str:
    """Describes the times of the reference (the user's module in PyTorch) in one line."""
    parts = [f"eager {milliseconds(event.eager_ms)}", f"torch.compile {milliseconds(event.compile_ms)}"]
    if event.floor_ms:
        parts.append(f"roofline floor {milliseconds(event.floor_ms)}")
    return ", ".join(parts)


def of_best(event: BestImproved) -> str:
    """Describes the best candidate so far in one line."""
    against = (
        f"{times(event.speedup_vs_eager)} eager"
        if event.speedup_vs_compile is None
        else f"{times(event.speedup_vs_compile)} torch.compile"
    )
    state = "confirmed" if event.confirmed else "not yet confirmed"
    parts = event.schedule.split("; ")
    schedule = event.schedule if len(parts) <= MOST_PARTS else f"{len(parts)} parts"
    return f"{milliseconds(event.candidate_ms)}, {against}, {state}" + (f" ({schedule})" if schedule else "")


def of_error(relative: float | None, largest: float) -> str:
    """Describes an error against float64. The relative error comes first, because a large absolute error may be small
    for large values."""
    absolute = f"absolute {largest:.2g} at most"
    return f"against float64: {absolute if relative is None else f'relative {relative:.2g}, {absolute}'}"


def way_to_take(session: str, job: str) -> str:
    """Returns the command with which the user takes over the kernels of a job. A class of a live session (`session` is
    not empty) has no file to apply them to, so they are exported."""
    return f"kernel-assistant export {job} DIR --to package" if session else f"kernel-assistant apply {job}"


def of_accuracy(accuracy: Accuracy, precision: str) -> str:
    """Describes the error against float64 (relative error first), the ratio to PyTorch's own error, and on how many
    inputs both were measured."""
    parts = [
        of_error(accuracy.relative_error, accuracy.error),
        f"{accuracy.error_ratio:.2g} times PyTorch's own",
        precision,
        "bit-reproducible" if accuracy.bit_reproducible else "not bit-reproducible",
        f"{accuracy.inputs_tried} inputs, {accuracy.shapes_tried} shapes",
    ]
    return "; ".join(part for part in parts if part)


def written_by(policy: str) -> str:
    """Describes who wrote a candidate, from the name of its policy."""
    return {"freeform": "the author of the file that was checked"}.get(policy, f"the {policy}")


def of_share(evaluation: Evaluation) -> str:
    """Describes which share of the time is spent in our kernels, and what the rest is spent in."""
    share = evaluation.share_in_our_kernels
    if evaluation.residual:
        return f"{share:.1%} of the time (partial); PyTorch's own calls: {_calls(evaluation.residual)}"
    return "all of the time" if share >= 0.9995 else f"{share:.1%} of the time; the rest is in libraries (partial)"


def _calls(residual: Sequence[str]) -> str:
    """Lists PyTorch's own calls by name, such as `linear (n2)`. If one operator has more than MOST_CALLS calls, gives
    only their number: `linear (64 calls)`."""
    by_operator: dict[str, list[str]] = {}
    for call in residual:
        by_operator.setdefault(call.partition(" (")[0], []).append(call)
    return ", ".join(
        f"{operator} ({len(calls)} calls)" if len(calls) > MOST_CALLS else ", ".join(calls)
        for operator, calls in by_operator.items()
    )


def of_roofline(timing: Timing) -> str:
    """Describes how near the time is to the lower bound (roofline), such as `80% of the roofline`; "" if the device's
    bandwidth is not known."""
    return f"{timing.roofline:.0%} of the roofline" if timing.roofline else ""


def counted(candidates: int) -> str:
    return f"{candidates} candidate{'' if candidates == 1 else 's'}"


def of_ending(result: OptimizeResult) -> str:
    """Describes how many candidates were tried, for how long, and why the job stopped."""
    stop = result.stop_reason.replace("_", " ")
    return f"{counted(result.evaluations)} in {result.seconds:.0f} s; stopped: {stop}"


def of_spending(spent: Spending | None) -> str:
    """Describes what a model has cost, such as `3 requests, 12.1k tokens in, 1.2k out, cost 0.03`; "" before the first
    reply. The currency is that of the price."""
    if spent is None or not spent.requests:
        return ""
    requests = f"{spent.requests} request{'' if spent.requests == 1 else 's'}"
    about = "about " if spent.estimated else ""
    tokens = f"{about}{_short(spent.tokens_in)} tokens in, {_short(spent.tokens_out)} out"
    money = "" if spent.money is None else f", cost {_money(spent.money)}"
    return f"{requests}, {tokens}{money}"


def _short(number: int) -> str:
    """Formats a number of tokens: 999, `12.1k` or `1.2M`."""
    if number < 1000:
        return str(number)
    return f"{number / 1e3:.1f}k" if number < 999_950 else f"{number / 1e6:.1f}M"


def _money(amount: float) -> str:
    """Formats an amount of money with two decimals, or with two significant digits if it is below 0.1."""
    return f"{amount:.2f}" if amount >= 0.1 or not amount else f"{amount:.2g}"


def named(win: FreeWin) -> str:
    return win.name.replace("_", " ")


def of_free_win(win: FreeWin) -> str:
    """Describes one free win (a speed-up that needs no kernel) in one line."""
    if not win.measured:
        return f"{named(win)} {win.note}"
    gain = f"{times(win.speedup_vs_eager)} eager" if win.name == COMPILE else f"{times(win.speedup_vs_compile)} compile"
    return f"{named(win)} {gain}" + ("" if win.passes else f", {win.note}")


def against_free_wins(result: OptimizeResult) -> list[tuple[str, bool]]:
    """Compares the kernel with the best free win (a speed-up that needs no kernel), and with TF32 even if TF32 changes
    results.

    Returns for each comparison a line of text, and whether the free win makes the kernel unnecessary.
    """
    best = best_free_win(result.free_wins)
    wins = [] if best is None else [best]
    wins += [win for win in result.free_wins if win.name == "tf32" and win.gains and not win.passes]
    return [_beside(result, win) for win in wins]


def _beside(result: OptimizeResult, win: FreeWin) -> tuple[str, bool]:
    """Returns the same as `against_free_wins` for one free win. The kernel and the free win were each timed against
    plain torch.compile, but not at the same time."""
    free = win.speedup_vs_compile or 0.0
    what = f"{named(win)} ({'' if win.passes else 'changes results, '}{times(free)} torch.compile)"
    kernel = result.best.speedup_vs_compile if result.best is not None else None
    if kernel is None:
        return f"best without a kernel: {what}", False
    if free >= kernel:
        return f"{what} needs no kernel and is no slower than the one found here ({times(kernel)})", True
    return f"the kernel ({times(kernel)} torch.compile) is about {times(kernel / free)} as fast as {what}", False
