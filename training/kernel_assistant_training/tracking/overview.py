"""A whole pipeline on one page: its stages behind each other in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernel_assistant_training.tracking.curves import Curve, Numbers, Stage
from kernel_assistant_training.tracking.draw import draw_panel, of_panel, save
from kernel_assistant_training.tracking.panels import OVERVIEW
from kernel_assistant_training.tracking.style import RC

#: Seconds between two lines of a stage that are certainly no pause, and how many usual distances are none either.
PAUSE_S, PAUSE = 60.0, 10.0
WIDTH, HEIGHT = 11.0, 2.1
#: Height of the row of names, of a panel's.
STRIP = 0.28
#: Of the width: names of narrower stages are turned.
NARROW = 0.09
#: Of the width, between two of these.
APART = 0.025


@dataclass(frozen=True)
class Part:
    """A stage of the pipeline under `name`: what it reported, in the order in which it did."""

    name: str
    stages: Sequence[Stage]


def overview(parts: Sequence[Part], heading: str, path: Path) -> list[Path]:
    """Rows of what the stages have in common over the minutes that they took; [] without any figure. Raises
    StoreError."""
    edges, placed = [0.0], list[dict[str, Curve]]()
    for part in parts:
        end = edges[-1]
        for stage in part.stages:
            minutes = end + _seconds(stage.times.values) / 60
            placed.append({name: _over(curve, stage.times.steps, minutes) for name, curve in stage.curves.items()})
            end = float(minutes[-1])
        edges.append(end)
    shown = [panel for panel in OVERVIEW if any(name in curves for curves in placed for name in panel.figures)]
    if not shown:
        return []
    with rc_context(RC):
        figure = Figure(figsize=(WIDTH, HEIGHT * len(shown) + 1.2), layout="constrained")
        heights = [STRIP, *[1.0] * len(shown)]
        strip, *rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights).ravel()
        for axes, panel in zip(rows, shown, strict=True):
            draw_panel(axes, panel, [one for curves in placed if (one := of_panel(panel, curves))])
            _bands(axes, edges)
        rows[-1].set_xlabel("minutes of training, without pauses")
        rows[-1].set_xlim(0, max(1.01 * edges[-1], 1e-3))
        _names(strip, [part.name for part in parts], edges)
        return save(figure, heading, "", path)


def _seconds(times: Numbers) -> Numbers:
    """Since the stage's start, which is one usual distance before its first line; a pause counts as such a distance."""
    between = np.diff(times)
    usual = float(np.median(between)) if between.size else 1.0
    between = np.where(between > max(PAUSE_S, PAUSE * usual), usual, np.maximum(between, 0.0))
    found: Numbers = usual + np.concatenate([[0.0], np.cumsum(between)])
    return found


def _over(curve: Curve, steps: Numbers, minutes: Numbers) -> Curve:
    return replace(curve, steps=np.interp(curve.steps, steps, minutes))


def _bands(axes: Axes, edges: Sequence[float]) -> None:
    for number, (begin, end) in enumerate(pairwise(edges)):
        axes.axvspan(begin, end, color="#f2f2f2" if number % 2 else "white", zorder=0, linewidth=0)


def _names(strip: Axes, names: Sequence[str], edges: Sequence[float]) -> None:
    """In a row of their own; those of narrow stages are turned."""
    _bands(strip, edges)
    strip.set_axis_off()
    free = 0.0
    for name, (begin, end) in zip(names, pairwise(edges), strict=True):
        narrow = end - begin < NARROW * edges[-1]
        place = max((begin + end) / 2, free) if narrow else (begin + end) / 2
        free = place + APART * edges[-1]
        strip.text(
            place,
            0.05 if narrow else 0.3,
            name,
            ha="left" if narrow else "center",
            va="bottom",
            rotation=40 if narrow else 0,
            rotation_mode="anchor",
            transform=strip.get_xaxis_transform(),
            color="#444444",
        )
