"""What a run of episodes is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant_training.episodes.lesson import FAULTS
from kernel_assistant_training.synth.narrow import Narrow


@dataclass(frozen=True)
class Options:
    """`part` of `parts` processes, `builders` compilers at a time in each, on `builder_cores` where there are any. Each
    ends at `until`, a time of `time.monotonic`, or after `tasks`, of which each has `lessons` at most; `cache` has the
    device's bandwidths. With `own_device` no other process measures there. Tasks are those of `narrow`; with the
    `clock` "nominal" conversations name times that nobody measured."""

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
