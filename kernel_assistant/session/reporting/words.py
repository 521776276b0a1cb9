"""Texts about measurements and results, the same in every front end. They claim no more than was measured."""

from __future__ import annotations

import time

from kernel_assistant.events import BaselineMeasured, BestImproved
from kernel_assistant.records import (
    Accuracy,
    Evaluation,
    FreeWin,
    Gain,
    JobOutcome,
    OptimizeResult,
    ProgramMode,
    StopReason,
    Timing,
)
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower
from kernel_assistant.records.free_win import COMPILE, best_free_win, float32_win

#: Note for figures from a search that are not confirmed.
NOT_CONFIRMED = "figures of the search, not confirmed on fresh samples"


def milliseconds(value: float | None) -> str:
    """Formats a time with three significant digits and a suitable unit."""
    if value is None:
        return "not measured"
    if value < 0.1:
        return f"{value * 1e3:.3g} µs"
    return f"{value / 1e3:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def ago(moment: float) -> str:
    """Describes a time stamp relative to now; "" for 0."""
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
    """Describes the time until `ends`, when a job's budget is used up; "" without a budget. A job may run a little
    longer."""
    if not ends:
        return ""
    return f"{ends - now:.0f} s left" if ends > now else "over its budget"


def of_baseline(event: BaselineMeasured) -> str:
    """Describes the times of the reference in one line."""
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
    schedule = f" ({event.schedule})" if event.schedule else ""
    return f"{milliseconds(event.candidate_ms)}, {against}, {state}{schedule}"


def verdict(result: OptimizeResult, timing: Timing | None) -> str:
    """Describes the result of a job in a few words."""
    if result.stop_reason == StopReason.unverified.value:
        return f"unverified: the budget ended before the best candidate was measured in full; {_continue(result)}"
    match result.outcome:
        case JobOutcome.improved if timing is not None and timing.compile_ms is None:
            return "measurably faster than eager (torch.compile could not be measured)"
        case JobOutcome.improved:
            return "measurably faster than torch.compile and eager"
        case JobOutcome.no_measurable_gain if in_float32(result) is not None:
            return "no gain: the module in float32 is at least as fast, without a kernel"
        case JobOutcome.no_measurable_gain:
            return _no_gain(timing, confirmed=result.best is not None) + _over_eager(result)
        case JobOutcome.at_limit:
            return "already at the limit: torch.compile reaches what the device allows, nothing was tried"
        case JobOutcome.no_candidate:
            return _nothing_found(result)
        case JobOutcome.inconclusive:
            return f"inconclusive: {_unclear(timing if result.best is not None else None)}{_over_eager(result)}"
        case JobOutcome.cancelled:
            return "cancelled" + ("; the best so far is kept" if "plan.json" in result.artifacts else "")
        case JobOutcome.profiled:
            return "its lines were timed"
        case JobOutcome.failed:
            return f"failed: {result.stop_reason.replace('_', ' ')}"


def _unclear(timing: Timing | None) -> str:
    """Describes what is known if neither a gain nor its absence was shown; torch.compile, which matters most, first."""
    if timing is None:
        return "other work on the machine disturbed every measurement; try again when it is quiet"
    if timing.is_clear:
        return "faster by itself, and in the edited file either a gain or none"
    by_compile = timing.vs_compile is Gain.unclear
    what = "torch.compile" if by_compile else "eager"
    low, high = (timing.speedup_vs_compile_ci if by_compile else timing.speedup_vs_eager_ci) or (0.0, 0.0)
    return f"{low:.2f} to {high:.2f} times as fast as {what}, which allows for a gain and for none"


#: Of a job whose policies gave no reason.
_UNSUPPORTED = "no policy here can write this module's operators"


def _nothing_found(result: OptimizeResult) -> str:
    if result.stop_reason == StopReason.unsupported.value:
        return f"no candidate: {result.why or _UNSUPPORTED}"
    if result.stop_reason != StopReason.wall_time.value:
        return "no correct candidate was found"
    if not result.evaluations:
        return "unverified: the budget ended before a candidate was judged; continue with a longer --budget"
    return "no correct candidate was found; a longer --budget tries more"


def why_nothing(result: OptimizeResult, *, budget: str) -> str:
    """Says in one line why a job found no candidate. `budget` is the reader's word for the setting that limits it."""
    out_of_time = result.stop_reason == StopReason.wall_time.value
    if result.why:
        reason = result.why
    elif result.stop_reason == StopReason.unsupported.value:
        reason = _UNSUPPORTED
    elif out_of_time and not result.evaluations:
        reason = "the budget ended before one was judged"
    else:
        reason = "none was correct"
    return f"{reason}; continue with a longer {budget}" if out_of_time else reason


def _continue(result: OptimizeResult) -> str:
    """Returns the command that continues a stopped job."""
    if "plan.json" not in result.artifacts:
        return "continue with a longer --budget"
    return f"continue with: kernel-assistant confirm {result.artifacts['job']}"


def in_float32(result: OptimizeResult) -> FreeWin | None:
    """Returns the free win of running the module in float32, if it makes the kernel unnecessary."""
    return float32_win(result.free_wins, result.best.speedup_vs_compile if result.best is not None else None)


def _no_gain(timing: Timing | None, *, confirmed: bool) -> str:
    if timing is None:
        return "no gain was confirmed"
    if measurably_slower(timing.speedup_vs_compile, timing.speedup_vs_compile_ci):
        return "slower than torch.compile"
    if measurably_slower(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return "slower than eager"
    if timing.compile_ms is not None and not measurably_faster(timing.speedup_vs_compile, timing.speedup_vs_compile_ci):
        return "not measurably faster than torch.compile"
    if not measurably_faster(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return "not measurably faster than eager"
    return "faster by itself, but not in the edited file" if confirmed else "no gain was confirmed"


def of_error(relative: float | None, largest: float) -> str:
    """Describes an error against float64. The relative error comes first, because a large absolute error may be small
    for large values."""
    absolute = f"absolute {largest:.2g} at most"
    return f"against float64: {absolute if relative is None else f'relative {relative:.2g}, {absolute}'}"


def _over_eager(result: OptimizeResult) -> str:
    """Describes the verdict over eager mode, which follows that over torch.compile."""
    if result.best is None or result.vs_eager is not Gain.faster or result.vs_compile is Gain.faster:
        return ""
    return f"; {result.best.speedup_vs_eager:.2f} times as fast as eager"


def of_gain(gain: Gain, speedup: float | None, bounds: tuple[float, float] | None) -> str:
    """Describes one verdict with its figures, such as `a gain, 1.87× (1.81–1.93)`."""
    words = {
        Gain.faster: "a gain",
        Gain.slower: "slower",
        Gain.no_gain: "no gain",
        Gain.unclear: "not clear",
        Gain.unknown: "not measured in full",
    }[gain]
    return words if gain is Gain.unknown else f"{words}, {times(speedup)} {interval(bounds)}".rstrip()


def verdicts(result: OptimizeResult) -> list[tuple[str, str]]:
    """Returns both verdicts, over torch.compile first, and their meaning for the user's program. Empty for results of
    older versions."""
    best = result.best
    if best is None or result.vs_eager is Gain.unknown:
        return []
    rows = [("over eager", of_gain(result.vs_eager, best.speedup_vs_eager, best.speedup_vs_eager_ci))]
    if result.vs_compile is not Gain.unknown:
        over_compile = of_gain(result.vs_compile, best.speedup_vs_compile, best.speedup_vs_compile_ci)
        rows.insert(0, ("over torch.compile", over_compile))
    return [*rows, ("your program", words)] if (words := of_program(result)) else rows


def way_to_take(session: str, job: str) -> str:
    """Returns the command that uses the kernels of a job. A class of a session has no file to apply them to."""
    return f"kernel-assistant export {job} DIR --to package" if session else f"kernel-assistant apply {job}"


def of_program(result: OptimizeResult) -> str:
    """Describes what it means for the user's program that the gain is over eager mode only; "" for any other result."""
    if result.vs_eager is not Gain.faster or result.vs_compile in (Gain.faster, Gain.unknown):
        return ""
    slower = result.vs_compile is Gain.slower
    gains = "it is slower than torch.compile" if slower else "no gain over torch.compile was confirmed"
    if result.program is ProgramMode.compiled:
        return f"it runs the class inside torch.compile (as a scan saw it), and {gains}"
    if result.program is ProgramMode.eager:
        return f"it runs the class without torch.compile (as a scan saw it): a gain over what you run; {gains}"
    return f"a gain where it runs the class without torch.compile; {gains}"


def of_accuracy(accuracy: Accuracy, precision: str) -> str:
    """Describes the error, relative error first, and how it was computed."""
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
    """Describes how much of the time is in our kernels, and what takes the rest of the time."""
    share = evaluation.share_in_our_kernels
    if evaluation.residual:
        calls = ", ".join(evaluation.residual)
        return f"{share:.1%} of the time (partial); PyTorch's own calls: {calls}"
    return "all of the time" if share >= 0.9995 else f"{share:.1%} of the time; the rest is in libraries (partial)"


def of_roofline(timing: Timing) -> str:
    """Describes the time relative to the roofline; "" if the device's bandwidth is not known."""
    return f"{timing.roofline:.0%} of the roofline" if timing.roofline else ""


def counted(candidates: int) -> str:
    return f"{candidates} candidate{'' if candidates == 1 else 's'}"


def of_ending(result: OptimizeResult) -> str:
    """Describes how many candidates were tried, for how long, and why the job stopped."""
    stop = result.stop_reason.replace("_", " ")
    return f"{counted(result.evaluations)} in {result.seconds:.0f} s; stopped: {stop}"


def named(win: FreeWin) -> str:
    return win.name.replace("_", " ")


def of_free_win(win: FreeWin) -> str:
    """Describes one free win in one line."""
    if not win.measured:
        return f"{named(win)} {win.note}"
    gain = f"{times(win.speedup_vs_eager)} eager" if win.name == COMPILE else f"{times(win.speedup_vs_compile)} compile"
    return f"{named(win)} {gain}" + ("" if win.passes else f", {win.note}")


def against_free_wins(result: OptimizeResult) -> list[tuple[str, bool]]:
    """Compares the kernel with the best free win, and with TF32 even if TF32 changes results.

    Returns lines, each with whether the free win makes the kernel unnecessary.
    """
    best = best_free_win(result.free_wins)
    wins = [] if best is None else [best]
    wins += [win for win in result.free_wins if win.name == "tf32" and win.gains and not win.passes]
    return [_beside(result, win) for win in wins]


def _beside(result: OptimizeResult, win: FreeWin) -> tuple[str, bool]:
    """Compares the kernel with one free win. Both were timed against plain torch.compile, in different rounds."""
    free = win.speedup_vs_compile or 0.0
    what = f"{named(win)} ({'' if win.passes else 'changes results, '}{times(free)} torch.compile)"
    kernel = result.best.speedup_vs_compile if result.best is not None else None
    if kernel is None:
        return f"best without a kernel: {what}", False
    if free >= kernel:
        return f"{what} needs no kernel and is no slower than the one found here ({times(kernel)})", True
    return f"the kernel ({times(kernel)} torch.compile) is about {times(kernel / free)} as fast as {what}", False
