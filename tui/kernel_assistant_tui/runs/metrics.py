"""The figures of a run, read as its file grows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.session.training_run import METRICS

#: Shown first, in this order; the rest in that of their coming.
FIRST = (
    "loss",
    "answer_loss",
    "reward",
    "held_out_reward",
    "pass_rate",
    "held_out_pass_rate",
    "faster_compile_rate",
    "held_out_faster_compile_rate",
    "answer_right",
    "policy_loss",
    "value_loss",
    "kl_reference",
    "kl_step",
    "entropy",
    "explained_variance",
    "tokens_per_s",
)
#: Bytes that one reading takes at most; the rest comes with the next.
_MOST_BYTES = 8 << 20


@dataclass
class Stage:
    """One stage's curves: name → step → value. A step that is written again counts with its later value."""

    name: str
    curves: dict[str, dict[float, float]] = field(default_factory=dict)
    step: float = 0.0
    time: float = 0.0

    def copy(self) -> Stage:
        return Stage(self.name, {name: dict(curve) for name, curve in self.curves.items()}, self.step, self.time)

    def names(self) -> list[str]:
        known = [name for name in FIRST if name in self.curves]
        return known + [name for name in self.curves if name not in FIRST]


class Tail:
    """Reads what was appended since the last time. `read` waits for the disk and belongs in a thread."""

    def __init__(self, run: Path) -> None:
        self.path = run / METRICS
        self.stages: dict[str, Stage] = {}
        self.bad_lines = 0
        self._at = 0

    def read(self) -> bool:
        """Whether anything is new. A file that became shorter is another run's: everything begins anew.

        Raises OSError where it cannot be read.
        """
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            if size < self._at:
                self.stages, self.bad_lines, self._at = {}, 0, 0
            file.seek(self._at)
            data = file.read(_MOST_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            self._note(line)
        return bool(whole)

    def _note(self, line: bytes) -> None:
        try:
            found = json.loads(line)
            stage, step, time = str(found.pop("stage")), float(found.pop("step")), float(found.pop("time"))
        except (ValueError, KeyError, AttributeError, TypeError):
            self.bad_lines += 1
            return
        kept = self.stages.setdefault(stage, Stage(stage))
        kept.step, kept.time = max(kept.step, step), time
        for name, value in found.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                kept.curves.setdefault(name, {})[step] = float(value)


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """About `most` of them, in order: of each stretch the lowest and the highest, and both ends."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) * 2 // most)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return [points[0], *(one for one in kept if points[0] < one < points[-1]), points[-1]]
