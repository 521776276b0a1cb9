"""The options of a run of episodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant_training.lessons.lesson import FAULTS
from kernel_assistant_training.synth.narrow import Narrow


@dataclass(frozen=True)
class EpisodeOptions:
    """This is process `part` of `parts`, each with `builders` compilers at a time, on `builder_cores` if given. It ends
    at `until`, a time of `time.monotonic`, or after `tasks`, with at most `lessons` of each; `cache` has the device's
    bandwidths. `own_device`: no other process measures on this process's cores. `narrow` restricts the tasks; on the
    `clock` "nominal" conversations contain computed instead of measured times."""

    target: str
    out: Path
    seed: int
    until: float
    python: str
    cache: Path
    part: int = 0
    parts: int = 1
    builders: int = 1
    builder_cores: tuple[int, ...] = ()
    own_device: bool = False
    faults: float = FAULTS
    estimated_compile: float = 0.5
    in_full: float = 0.15
    lessons: int = 8
    tasks: int = 1 << 62
    narrow: Narrow = field(default_factory=Narrow)
    clock: str = "measured"
