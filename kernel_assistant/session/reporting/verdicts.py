"""Describes the result of a job to users: the verdict over each baseline, what to apply, and the obstacles (reasons why
there is no gain)."""

from __future__ import annotations

from kernel_assistant.records import FreeWin, Gain, JobOutcome, Obstacle, Offer, OptimizeResult, ProgramMode, StopReason
from kernel_assistant.records.evaluation import gain_of
from kernel_assistant.records.free_win import fastest_mode, float32_win, over_change
from kernel_assistant.records.offer import OVER_COMPILE, OVER_EAGER, gives_more
from kernel_assistant.session.kinds.obstacles import CONFIRMATION
from kernel_assistant.session.reporting.words import interval, times

Bounds = tuple[float, float] | None


def verdict(result: OptimizeResult) -> str:
    """Describes the result of a job in a few words."""
    if result.best is None and (text := not_confirmed(result)):
        return text
    match result.outcome:
        case JobOutcome.improved:
            return _faster(result)
        case JobOutcome.no_measurable_gain if in_float32(result) is not None:
            return "no gain: the module in float32 is at least as fast, without a kernel"
        case JobOutcome.no_measurable_gain:
            return _no_gain(result)
        case JobOutcome.at_limit:
            return "already at the limit: torch.compile reaches what the device allows, nothing was tried"
        case JobOutcome.no_candidate:
            return _nothing_found(result)
        case JobOutcome.inconclusive:
            return f"inconclusive: {_unclear(result)}"
        case JobOutcome.cancelled:
            return "cancelled" + ("; the best so far is kept" if "plan.json" in result.artifacts else "")
        case JobOutcome.profiled:
            return "its lines were timed"
        case JobOutcome.failed:
            return f"failed: {result.stop_reason.replace('_', ' ')}"


def verdicts(result: OptimizeResult) -> list[tuple[str, str]]:
    """Returns (label, text) rows: the verdict over each baseline, torch.compile first, and a row for the user's program
    if the candidate gains over eager PyTorch alone. Empty for results of older versions."""
    if result.best is None or result.vs_eager is Gain.unknown:
        return []  # an older document, without both intervals
    rows = [(f"over {name}", of_gain(*each)) for name, each in _figures(result).items() if each[0] is not Gain.unknown]
    return [*rows, ("your program", words)] if (words := of_program(result)) else rows


def of_gain(gain: Gain, speedup: float | None, bounds: Bounds) -> str:
    """Describes one verdict with its speed-up and interval, such as `a gain, 1.87× (1.81–1.93)`."""
    words = {
        Gain.faster: "a gain",
        Gain.slower: "slower",
        Gain.no_gain: "no gain",
        Gain.unclear: "not clear",
        Gain.unknown: "not measured in full",
    }[gain]
    return words if gain is Gain.unknown else f"{words}, {times(speedup)} {interval(bounds)}".rstrip()


def of_program(result: OptimizeResult) -> str:
    """Describes what a gain over eager PyTorch alone means for the user's program; "" for any other result."""
    compiled = result.program is ProgramMode.compiled
    if compiled and result.vs_compile is not Gain.faster and result.vs_eager is Gain.faster:
        return f"it runs the class inside torch.compile (as a scan saw it), and {_other_words(result)}"
    if result.vs_eager is not Gain.faster or not (other := _other_words(result)):
        return ""
    if result.program is ProgramMode.eager:
        return f"it runs the class without torch.compile (as a scan saw it): a gain over what you run; {other}"
    return f"a gain where it runs the class without torch.compile; {other}"


def _other_words(result: OptimizeResult) -> str:
    """Describes how the candidate compares with the baselines other than eager; "" if it beats all of them that were
    timed."""
    more = [name for name in gives_more(result.verdicts) if name != OVER_EAGER]
    if more:
        return f"{more[0]} alone gives more"
    if result.vs_compile in (Gain.faster, Gain.unknown):
        return ""
    return "no gain over torch.compile was confirmed"


def apply_title(offer: Offer, gain_over: str) -> str:
    """Returns the title of the button or action that applies kernels. It is `Apply`; if the offer is only `possible`,
    it adds which baseline beats the kernels, such as `Apply (torch.compile alone gives more)`. `gain_over` is the
    name of the baseline that the kernels beat: "eager", "torch.compile", a mode of torch.compile, or "" for none."""
    other = OVER_COMPILE if gain_over == OVER_EAGER else OVER_EAGER
    return f"Apply ({other} alone gives more)" if offer is Offer.possible else "Apply"


def outcome_with_figure(result: OptimizeResult) -> str:
    """Returns the outcome in words, followed by the speed-up if there is something to apply. Without a gain the
    speed-up is left out, because it would seem to contradict the outcome."""
    words = result.outcome.value.replace("_", " ")
    best = result.best
    if best is None or not result.applicable or result.headline is None:
        return words
    if result.gain_over == OVER_EAGER:
        return f"{words}, {times(best.speedup_vs_eager)} eager"
    name, speedup, _ = result.headline
    return f"{words}, {times(speedup)} {name}"


#: Of a job whose policies gave no reason.
_UNSUPPORTED = "no policy here can write this module's operators"


def why_nothing(result: OptimizeResult, *, budget: str) -> str:
    """Returns in one line why a job found no candidate. `budget` is the front end's name for the setting that limits
    the time, such as `--budget`."""
    out_of_time = result.stop_reason == StopReason.wall_time.value
    if result.why:
        reason = result.why
    elif result.stop_reason == StopReason.unsupported.value:
        reason = _UNSUPPORTED
    elif out_of_time and not result.evaluations:
        reason = "the budget ended before one was judged"
    else:
        reason = next((of_obstacle(one) for one in result.obstacles), "none was correct")
    return f"{reason}; continue with a longer {budget}" if out_of_time else reason


def of_obstacle(obstacle: Obstacle) -> str:
    """Describes in one line which check failed, and where."""
    many = f", {obstacle.count} of {obstacle.of}" if obstacle.of > 1 else ""
    where = f" at {obstacle.where}" if obstacle.where and not obstacle.where.startswith("over ") else ""
    over = f" {obstacle.where}" if obstacle.where.startswith("over ") else ""
    return f"{obstacle.check}: {obstacle.outcome.replace('_', ' ')}{over}{many}{where}: {obstacle.message}"


def obstacle_rows(result: OptimizeResult) -> list[tuple[str, str]]:
    """Returns (label, text) rows: for each obstacle the failed check, and what the user can try. A missing confirmation
    is left out, because `verdict` describes it."""
    told = [one for one in result.obstacles if one.check != CONFIRMATION]
    rows = [(("failed check", of_obstacle(one)), ("try", one.next_step)) for one in told]
    return [row for pair in rows for row in pair if row[1]]


def in_float32(result: OptimizeResult) -> FreeWin | None:
    """Returns the free win (a change without kernels) that runs the module in float32, if it makes the kernels
    unnecessary; else None."""
    return float32_win(result.free_wins, result.best.speedup_vs_compile if result.best is not None else None)


def _figures(result: OptimizeResult) -> dict[str, tuple[Gain, float | None, Bounds]]:
    """Returns baseline → (verdict, speed-up, interval of the speed-up)."""
    best = result.best
    if best is None:
        return {}
    figures: dict[str, tuple[float | None, Bounds]] = {
        OVER_COMPILE: (best.speedup_vs_compile, best.speedup_vs_compile_ci),
        OVER_EAGER: (best.speedup_vs_eager, best.speedup_vs_eager_ci),
    }
    mode = fastest_mode(result.free_wins)
    if mode is not None:
        figures = {mode.mode: over_change(best.speedup_vs_compile, best.speedup_vs_compile_ci, mode), **figures}
    return {name: (gain_of(*each), *each) for name, each in figures.items()}


def _faster(result: OptimizeResult) -> str:
    """Describes a recommended candidate: the baselines that it beats, then those that it does not. In older documents,
    without an interval over eager, a recommended candidate beats both baselines."""
    figures = {name: each for name, each in _figures(result).items() if each[0] is not Gain.unknown}
    beaten = [name for name, each in figures.items() if each[0] is Gain.faster]
    if OVER_COMPILE not in figures and beaten:
        return "measurably faster than eager (torch.compile could not be measured)"
    if OVER_EAGER not in figures:
        return "measurably faster than torch.compile and eager"
    others = [f"over {name} {of_gain(*each)}" for name, each in figures.items() if each[0] is not Gain.faster]
    return "; ".join([f"measurably faster than {' and '.join(beaten)}", *others])


def _unclear(result: OptimizeResult) -> str:
    """Describes a result that shows neither a gain nor its absence, by the first comparison that is unclear;
    torch.compile comes before eager."""
    figures = _figures(result)
    if not figures:
        return "other work on the machine disturbed every measurement; try again when it is quiet"
    unclear = next((name for name, each in figures.items() if each[0] is Gain.unclear), None)
    if unclear is None:
        return "faster by itself, and in the edited file either a gain or none"
    low, high = figures[unclear][2] or (0.0, 0.0)
    return (
        f"{low:.2f} to {high:.2f} times as fast as {unclear}, which allows for a gain and for none{_over_eager(result)}"
    )


def _no_gain(result: OptimizeResult) -> str:
    """Describes why nothing is recommended, followed by a gain over eager mode if there is one."""
    if result.best is None:
        return "no gain was confirmed"
    gains = result.verdicts
    slower = gives_more(gains)
    if slower:
        return f"slower than {slower[0]}{_over_eager(result)}"
    none = [name for name, gain in gains.items() if gain is Gain.no_gain]
    if none:
        return f"no measurable gain over {' and '.join(none)}{_over_eager(result)}"
    return "faster by itself, but not in the edited file" if Gain.faster in gains.values() else "no gain was confirmed"


def _over_eager(result: OptimizeResult) -> str:
    """Returns words to append, such as `; 1.50 times as fast as eager`, if the candidate gains over eager mode but not
    over torch.compile; else ""."""
    gains = result.verdicts
    if result.best is None or gains.get(OVER_EAGER) is not Gain.faster or gains.get(OVER_COMPILE) is Gain.faster:
        return ""
    return f"; {result.best.speedup_vs_eager:.2f} times as fast as eager"


def not_confirmed(result: OptimizeResult) -> str:
    """Describes the result of a job whose correct candidate was not confirmed in the full tier; else ""."""
    obstacle = next((one for one in result.obstacles if one.check == CONFIRMATION), None)
    if obstacle is not None:
        return f"{obstacle.message}; confirm it with: {obstacle.next_step}"
    if result.stop_reason != StopReason.unverified.value:
        return ""
    kept = "plan.json" in result.artifacts
    way = f"; confirm it with: kernel-assistant confirm {result.artifacts['job']}" if kept else ""
    return f"a correct candidate was found and not confirmed: the budget ended first{way}"


def _nothing_found(result: OptimizeResult) -> str:
    if result.stop_reason == StopReason.unsupported.value:
        return f"no candidate: {result.why or _UNSUPPORTED}"
    if result.stop_reason != StopReason.wall_time.value:
        return "no correct candidate was found"
    if not result.evaluations:
        return "the budget ended before a candidate was judged; continue with a longer --budget"
    return "no correct candidate was found; a longer --budget tries more"
