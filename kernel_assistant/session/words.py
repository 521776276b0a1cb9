"""What is said of measurements and of results, the same in every front end: no more than was measured."""

from __future__ import annotations

import time

from kernel_assistant.events import BaselineMeasured, BestImproved
from kernel_assistant.records import Accuracy, Evaluation, FreeWin, JobOutcome, OptimizeResult, Timing
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower
from kernel_assistant.records.free_win import COMPILE, best_free_win

#: Beside figures that a search has found and nothing has confirmed.
NOT_CONFIRMED = "figures of the search, not confirmed on fresh samples"


def milliseconds(value: float | None) -> str:
    """Three significant digits, with a unit that fits."""
    if value is None:
        return "not measured"
    if value < 0.1:
        return f"{value * 1e3:.3g} µs"
    return f"{value / 1e3:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def ago(moment: float) -> str:
    """A time stamp in words; empty for 0."""
    if not moment:
        return ""
    seconds = max(0.0, time.time() - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"({bounds[0]:.2f}–{bounds[1]:.2f})"


def of_baseline(event: BaselineMeasured) -> str:
    """Times of the reference in one line."""
    parts = [f"eager {milliseconds(event.eager_ms)}", f"torch.compile {milliseconds(event.compile_ms)}"]
    if event.floor_ms:
        parts.append(f"roofline floor {milliseconds(event.floor_ms)}")
    return ", ".join(parts)


def of_best(event: BestImproved) -> str:
    """The best candidate so far in one line."""
    against = (
        f"{times(event.speedup_vs_eager)} eager"
        if event.speedup_vs_compile is None
        else f"{times(event.speedup_vs_compile)} torch.compile"
    )
    state = "confirmed" if event.confirmed else "not yet confirmed"
    schedule = f" ({event.schedule})" if event.schedule else ""
    return f"{milliseconds(event.candidate_ms)}, {against}, {state}{schedule}"


def verdict(result: OptimizeResult, timing: Timing | None) -> str:
    """What was found, in a few words."""
    match result.outcome:
        case JobOutcome.improved if timing is not None and timing.compile_ms is None:
            return "measurably faster than eager (torch.compile could not be measured)"
        case JobOutcome.improved:
            return "measurably faster than torch.compile and eager"
        case JobOutcome.no_measurable_gain:
            return _no_gain(timing)
        case JobOutcome.at_limit:
            return "already at the limit: torch.compile reaches what the device allows, nothing was tried"
        case JobOutcome.no_candidate if result.stop_reason == "unsupported":
            return "no candidate: no policy here can write this module's operators"
        case JobOutcome.no_candidate:
            return "no correct candidate was found"
        case JobOutcome.inconclusive:
            return "inconclusive: other work on the machine disturbed every measurement; try again when it is quiet"
        case JobOutcome.cancelled:
            return "cancelled" + ("; the best so far is kept" if "plan.json" in result.artifacts else "")
        case JobOutcome.profiled:
            return "its lines were timed"
        case JobOutcome.failed:
            return f"failed: {result.stop_reason.replace('_', ' ')}"


def _no_gain(timing: Timing | None) -> str:
    if timing is None:
        return "no gain was confirmed"
    if measurably_slower(timing.speedup_vs_compile, timing.speedup_vs_compile_ci):
        return "slower than torch.compile"
    if measurably_slower(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return "slower than eager"
    if timing.compile_ms is None or measurably_faster(timing.speedup_vs_compile, timing.speedup_vs_compile_ci):
        return "not measurably faster than eager"
    return "not measurably faster than torch.compile"


def of_accuracy(accuracy: Accuracy, precision: str) -> str:
    """The error, and how it was found."""
    parts = [
        f"{accuracy.error:.2g} at most from float64, {accuracy.error_ratio:.2g} times PyTorch's own",
        precision,
        "bit-reproducible" if accuracy.bit_reproducible else "not bit-reproducible",
        f"{accuracy.inputs_tried} inputs, {accuracy.shapes_tried} shapes",
    ]
    return "; ".join(part for part in parts if part)


def of_share(evaluation: Evaluation) -> str:
    """How much of the time is ours, and whose the rest is."""
    share = evaluation.share_in_our_kernels
    if evaluation.residual:
        calls = ", ".join(evaluation.residual)
        return f"{share:.1%} of the time (partial); PyTorch's own calls: {calls}"
    return "all of the time" if share >= 0.9995 else f"{share:.1%} of the time; the rest is in libraries (partial)"


def of_roofline(timing: Timing) -> str:
    """ "" where the device's ceilings are not known."""
    return f"{timing.roofline:.0%} of the roofline" if timing.roofline else ""


def of_ending(result: OptimizeResult) -> str:
    """How many were tried, for how long, and why it stopped."""
    stop = result.stop_reason.replace("_", " ")
    count = f"{result.evaluations} candidate{'' if result.evaluations == 1 else 's'}"
    return f"{count} in {result.seconds:.0f} s; stopped: {stop}"


def named(win: FreeWin) -> str:
    return win.name.replace("_", " ")


def of_free_win(win: FreeWin) -> str:
    """One win in one line."""
    if not win.measured:
        return f"{named(win)} {win.note}"
    gain = f"{times(win.speedup_vs_eager)} eager" if win.name == COMPILE else f"{times(win.speedup_vs_compile)} compile"
    return f"{named(win)} {gain}" + ("" if win.passes else f", {win.note}")


def against_free_wins(result: OptimizeResult) -> list[tuple[str, bool]]:
    """The kernel beside the best free change, and beside TF32 also where that changes results.

    Each line with whether the free change makes the kernel needless.
    """
    best = best_free_win(result.free_wins)
    wins = [] if best is None else [best]
    wins += [win for win in result.free_wins if win.name == "tf32" and win.gains and not win.passes]
    return [_beside(result, win) for win in wins]


def _beside(result: OptimizeResult, win: FreeWin) -> tuple[str, bool]:
    """The kernel against one free change; both over plain torch.compile, in different rounds."""
    free = win.speedup_vs_compile or 0.0
    what = f"{named(win)} ({'' if win.passes else 'changes results, '}{times(free)} torch.compile)"
    kernel = result.best.speedup_vs_compile if result.best is not None else None
    if kernel is None:
        return f"best without a kernel: {what}", False
    if free >= kernel:
        return f"{what} needs no kernel and is no slower than the one found here ({times(kernel)})", True
    return f"the kernel ({times(kernel)} torch.compile) is about {times(kernel / free)} as fast as {what}", False
