"""Which step runs on which GPU, in which order, with which cores: `0:small,held_out 1@8-15:tasks,labels 0+1:pool`.

Each word is a lane: GPUs, optionally cores, and steps that run one after another. Lanes run in parallel, but a lane
waits for earlier ones that use one of its GPUs. Cores that are not named are divided evenly among the GPUs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Seconds of each step, including its start.
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
#: Steps that use the results of another; they wait for it if both run.
NEEDS: Mapping[str, str] = {"held_out": "small", "labels": "tasks"}
_WORD = re.compile(r"(?P<gpus>\d+(\+\d+)*)(@(?P<cores>[\d,-]+))?:(?P<steps>[a-z_]+(,[a-z_]+)*)")


class PlacementError(ValueError):
    """The placement is invalid; the message is one line."""


@dataclass(frozen=True)
class Lane:
    gpus: tuple[int, ...]
    cores: tuple[int, ...]
    steps: tuple[str, ...]


def lanes(words: Sequence[str], cores: Sequence[int]) -> list[Lane]:
    """Parses the words. Raises PlacementError."""
    read = [_lane(word) for word in words]
    if not read:
        raise PlacementError(f"no step: say for example 0:small,held_out; there are {', '.join(LIMITS)}")
    steps = [step for _, _, some in read for step in some]
    for index, step in enumerate(steps):
        if step in steps[:index]:
            raise PlacementError(f"{step} stands twice")
        if NEEDS.get(step) in steps[index:]:
            raise PlacementError(f"{step} stands before {NEEDS[step]}, which it needs")
    gpus = sorted({gpu for some, _, _ in read for gpu in some})
    mine = {gpu: share(cores, index, len(gpus)) for index, gpu in enumerate(gpus)}
    result = []
    for some, named, of_lane in read:
        usual = tuple(core for gpu in some for core in mine[gpu])
        result.append(Lane(some, named or usual, of_lane))
    return result


def share(cores: Sequence[int], index: int, parts: int) -> tuple[int, ...]:
    """Part number `index` of `parts`; all cores if there are fewer cores than parts."""
    if len(cores) < parts:
        return tuple(cores)
    return tuple(cores[index * len(cores) // parts : (index + 1) * len(cores) // parts])


def before(all_lanes: Sequence[Lane], index: int) -> list[int]:
    """The numbers of the lanes that lane number `index` waits for."""
    mine = set(all_lanes[index].gpus)
    return [number for number in range(index) if mine & set(all_lanes[number].gpus)]


def limits(text: str) -> dict[str, int]:
    """LIMITS with the changes of a text such as `labels=300 pool=90`. Raises PlacementError."""
    seconds_of = dict(LIMITS)
    for word in text.split():
        step, _, seconds = word.partition("=")
        if _known(step) and not seconds.isdigit():
            raise PlacementError(f"{word!r}: seconds are wanted, as in {step}=300")
        seconds_of[step] = int(seconds)
    return seconds_of


def listed(cores: Sequence[int]) -> str:
    """The cores as taskset takes them: 0-3,8."""
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


def _cores(text: str, word: str) -> tuple[int, ...]:
    cores: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise PlacementError(f"{word!r}: cores are written as in 0-7,16")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _known(step: str) -> bool:
    if step not in LIMITS:
        near = difflib.get_close_matches(step, LIMITS, 1, 0.0)
        raise PlacementError(f"there is no step {step!r}: {near[0]}? All: {', '.join(LIMITS)}")
    return True
