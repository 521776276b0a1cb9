"""Reads the metrics of a training run while their file grows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.session.training_run import METRICS
from kernel_assistant.session.training_stages import FIRST, appended_lines

#: Most bytes of one reading; the next reading gets the rest.
_MOST_BYTES = 8 << 20


@dataclass
class Stage:
    """The curves of one stage of training: `curves` maps the name of a metric to step → value. If a step is written
    twice, the later value counts. `step` is the highest step, `time` that of the last line."""

    name: str
    curves: dict[str, dict[float, float]] = field(default_factory=dict)
    step: float = 0.0
    time: float = 0.0

    def copy(self) -> Stage:
        return Stage(self.name, {name: dict(curve) for name, curve in self.curves.items()}, self.step, self.time)

    def names(self) -> list[str]:
        known = [name for name in FIRST if name in self.curves]
        return known + [name for name in self.curves if name not in FIRST]


class MetricsTail:
    """Reads the metrics of a run; each `read` continues where the last one has ended. `stages` maps the name of each
    stage to its curves; `bad_lines` counts lines that are not valid. `read` waits for the disk: call it in a thread."""

    def __init__(self, run: Path) -> None:
        self.path = run / METRICS
        self.stages: dict[str, Stage] = {}
        self.bad_lines = 0
        self._at = 0

    def read(self) -> bool:
        """Read new lines. Return whether there were any. If the file is shorter than before, it is read from the
        start.

        Raises OSError if the file cannot be read.
        """
        start, lines = appended_lines(self.path, self._at, _MOST_BYTES)
        if start < self._at:
            self.stages, self.bad_lines = {}, 0
        self._at = start + len(lines)
        for line in lines.splitlines():
            self._note(line)
        return bool(lines)

    def _note(self, line: bytes) -> None:
        try:
            values = json.loads(line)
            stage, step, time = str(values.pop("stage")), float(values.pop("step")), float(values.pop("time"))
        except (ValueError, KeyError, AttributeError, TypeError):
            self.bad_lines += 1
            return
        kept = self.stages.setdefault(stage, Stage(stage))
        kept.step, kept.time = max(kept.step, step), time
        for name, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                kept.curves.setdefault(name, {})[step] = float(value)


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Reduce sorted points to about `most`: keep the lowest and the highest point of each interval, and the first and
    the last point."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) * 2 // most)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return [points[0], *(one for one in kept if points[0] < one < points[-1]), points[-1]]
