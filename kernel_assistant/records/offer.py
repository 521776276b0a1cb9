"""The one rule that decides which kernels are offered to the user: recommended ones, and others that can be applied.
Every front end uses it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kernel_assistant.records.evaluation import Gain, gain_of
from kernel_assistant.records.free_win import FreeWin, fastest_mode, over_change


class ProgramMode(str, Enum):
    """How the user's program runs the class (eager, compiled or scripted), as a scan observed it; `unknown` without a
    scan."""

    unknown = "unknown"
    eager = "eager"
    compiled = "compiled"
    scripted = "scripted"


#: Names of baselines, and values of `OptimizeResult.gain_over`.
OVER_COMPILE, OVER_EAGER = "torch.compile", "eager"
#: The verdict over each baseline by its name: eager, torch.compile's default and, once it was timed, its fastest mode.
Verdicts = Mapping[str, Gain]
#: A speed-up and its interval; None where it was not measured.
Figure = tuple[float | None, tuple[float, float] | None]


class Offer(str, Enum):
    """Whether front ends offer to apply a candidate that was measured in full."""

    recommended = "recommended"  # measurably faster than one of the timed baselines, measurably slower than none
    possible = "possible"  # a gain over what the program runs; another baseline alone gives more
    unclear = "unclear"  # the measurements allow for a gain and for none
    none = "none"

    @property
    def applicable(self) -> bool:
        """Whether applying the candidate gains something over the baseline that the program runs, or may run."""
        return self in (Offer.recommended, Offer.possible)


def offer_of(verdicts: Verdicts, program: ProgramMode = ProgramMode.unknown) -> Offer:
    """Returns the offer that follows from the verdicts (baseline → faster, slower, no gain or unclear). A baseline that
    was not timed does not count; a program that no scan has seen counts as eager.

    If a scan has seen which baseline the program runs, and the candidate is shown to gain nothing over that baseline,
    there is nothing to offer, whatever it gains over the other baseline.
    """
    timed = {name: gain for name, gain in verdicts.items() if gain is not Gain.unknown}
    runs = timed.get(_run_by(program), Gain.unknown)
    if program is not ProgramMode.unknown and runs is Gain.no_gain:
        return Offer.none
    if Gain.faster in timed.values() and Gain.slower not in timed.values():
        return Offer.recommended
    if runs is Gain.faster:
        return Offer.possible
    refuted = Gain.slower in timed.values() or Gain.unclear not in timed.values()
    return Offer.none if refuted else Offer.unclear


def gain_over(verdicts: Verdicts, program: ProgramMode = ProgramMode.unknown) -> str:
    """Returns the name of the baseline over which an offer states its gain; "" if there is nothing to apply. Of the
    baselines that the candidate beats, it is the one that the program is known to run, else torch.compile, else the
    first one."""
    if not offer_of(verdicts, program).applicable:
        return ""
    known = [] if program is ProgramMode.unknown else [_run_by(program)]
    return next(name for name in (*known, OVER_COMPILE, *verdicts) if verdicts.get(name) is Gain.faster)


def gives_more(verdicts: Verdicts) -> tuple[str, ...]:
    """Returns the names of the baselines that are measurably faster than the candidate: switching to one of them gains
    more than the kernels do."""
    return tuple(name for name, gain in verdicts.items() if gain is Gain.slower)


def verdicts_of(over_compile: Figure, over_eager: Figure, wins: tuple[FreeWin, ...] = ()) -> dict[str, Gain]:
    """Returns the name of each baseline → the verdict (faster, slower, …). `over_compile` and `over_eager` are
    speed-ups with their intervals. The fastest mode of torch.compile among `wins` is one more baseline; the speed-up
    over it is the kernel's speed-up over the default mode divided by that of the fastest mode."""
    verdicts = {OVER_COMPILE: gain_of(*over_compile), OVER_EAGER: gain_of(*over_eager)}
    mode = fastest_mode(wins)
    if mode is not None:
        verdicts[mode.mode] = gain_of(*over_change(*over_compile, mode))
    return verdicts


def _run_by(program: ProgramMode) -> str:
    return OVER_COMPILE if program is ProgramMode.compiled else OVER_EAGER
