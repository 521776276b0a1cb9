"""Which step runs on which GPU, in which order, with which cores: `0:small,held_out 1@8-15:tasks,labels 0+1:pool`.

A word is a lane: GPUs, perhaps cores, and steps that run one after another. Lanes run side by side, but one waits for
those before it with which it shares a GPU. Cores that are not named are shared out evenly to the GPUs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Seconds of each step, its start included.
LIMITS: Mapping[str, int] = {
    "small": 1560,
    "held_out": 420,
    "tasks": 660,
    "labels": 600,
    "pool": 240,
    "base": 560,
    "ppo": 480,
    "times": 480,
    "gpu_tests": 420,
}
#: What a step takes from another one; it waits for it where both are asked for.
NEEDS: Mapping[str, str] = {"held_out": "small", "labels": "tasks"}
_WORD = re.compile(r"(?P<gpus>\d+(\+\d+)*)(@(?P<cores>[\d,-]+))?:(?P<steps>[a-z_]+(,[a-z_]+)*)")


class PlacementError(ValueError):
    """What is wrong, in one line."""


@dataclass(frozen=True)
class Lane:
    gpus: tuple[int, ...]
    cores: tuple[int, ...]
    steps: tuple[str, ...]


def lanes(words: Sequence[str], cores: Sequence[int]) -> list[Lane]:
    """Raises PlacementError."""
    read = [_lane(word) for word in words]
    if not read:
        raise PlacementError(f"no step: say for example 0:small,held_out; there are {', '.join(LIMITS)}")
    steps = [step for _, _, some in read for step in some]
    for place, step in enumerate(steps):
        if step in steps[:place]:
            raise PlacementError(f"{step} stands twice")
        if NEEDS.get(step) in steps[place:]:
            raise PlacementError(f"{step} stands before {NEEDS[step]}, which it needs")
    gpus = sorted({gpu for some, _, _ in read for gpu in some})
    mine = {gpu: share(cores, place, len(gpus)) for place, gpu in enumerate(gpus)}
    found = []
    for some, named, of_lane in read:
        usual = tuple(core for gpu in some for core in mine[gpu])
        found.append(Lane(some, named or usual, of_lane))
    return found


def share(cores: Sequence[int], place: int, parts: int) -> tuple[int, ...]:
    """Part number `place` of `parts`; all of them where there are fewer cores than parts."""
    if len(cores) < parts:
        return tuple(cores)
    return tuple(cores[place * len(cores) // parts : (place + 1) * len(cores) // parts])


def before(all_lanes: Sequence[Lane], place: int) -> list[int]:
    """The lanes that lane number `place` waits for."""
    mine = set(all_lanes[place].gpus)
    return [number for number in range(place) if mine & set(all_lanes[number].gpus)]


def limits(said: str) -> dict[str, int]:
    """The table, with what `labels=300 pool=90` changes. Raises PlacementError."""
    found = dict(LIMITS)
    for word in said.split():
        step, _, seconds = word.partition("=")
        if _known(step) and not seconds.isdigit():
            raise PlacementError(f"{word!r}: seconds are wanted, as in {step}=300")
        found[step] = int(seconds)
    return found


def listed(cores: Sequence[int]) -> str:
    """As taskset takes them: 0-3,8."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _lane(word: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    match = _WORD.fullmatch(word)
    if match is None:
        raise PlacementError(f"{word!r} is no placement: GPU[+GPU][@CORES]:STEP[,STEP], as in 0+1@0-15:pool")
    gpus = tuple(map(int, match["gpus"].split("+")))
    if len(set(gpus)) < len(gpus):
        raise PlacementError(f"{word!r} names a GPU twice")
    steps = tuple(match["steps"].split(","))
    for step in steps:
        _known(step)
    return gpus, _cores(match["cores"] or "", word), steps


def _cores(said: str, word: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in filter(None, said.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise PlacementError(f"{word!r}: cores are written as in 0-7,16")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _known(step: str) -> bool:
    if step not in LIMITS:
        near = difflib.get_close_matches(step, LIMITS, 1, 0.0)
        raise PlacementError(f"there is no step {step!r}: {near[0]}? All: {', '.join(LIMITS)}")
    return True
