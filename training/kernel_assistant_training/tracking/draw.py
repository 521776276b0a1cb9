"""Draws pages of panels with matplotlib, without pyplot, so that no window system is needed."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.style import context
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.records.codec import Record
from kernel_assistant_training.tracking.curves import MARKED, StageCurves

HERE = Path(__file__).parent
STYLE = HERE / "plots.mplstyle"
HELD_OUT, VERMILION = "held_out_", "#D55E00"
#: The lowest value that is drawn; lower ones are drawn here.
LOWEST = {"variance": -1.0}
COLUMNS = 3
#: A gap between two lines of a stage is a pause if it is longer than PAUSE_S seconds and than PAUSE usual gaps.
PAUSE_S, PAUSE = 60.0, 10.0


class Panel(Record, frozen=True, kw_only=True):
    """`figures` are names of metrics, with those of the legend. `kind` is the scale of values: linear; from 0 as shares
    of 1; logarithmic if they span more than a decade; stacked; explained variance; whole numbers, drawn as steps."""

    title: str
    unit: str
    figures: dict[str, str]
    kind: Literal["plain", "share", "log", "added", "variance", "whole"] = "plain"


#: Panels of a `stage` over its steps, of `evaluations` over checkpoints, and of a pipeline over time (`overview`).
PANELS = msgspec.convert(tomllib.loads((HERE / "panels.toml").read_text("utf-8")), type=dict[str, list[Panel]])


@context(STYLE)
def page(stage: StageCurves, kind: str, heading: str, axis: str, path: Path) -> list[Path]:
    """Draws the panels `kind` that have figures; returns the files, [] if no panel has any. `axis` is the label of the
    steps. Raises StoreError."""
    figure = _figure([stage], kind, COLUMNS, 4.2, 2.7)
    for axes in figure.axes:
        if axes.dataLim.width == 0:  # there is only one step
            axes.set_xlim(axes.dataLim.x0 - 1, axes.dataLim.x0 + 1)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(_short)
    for axes in figure.axes[-COLUMNS:]:
        axes.set_xlabel(axis)
    return _save(figure, heading, path)


@context(STYLE)
def overview(parts: Mapping[str, Sequence[StageCurves]], heading: str, path: Path) -> list[Path]:
    """Draws the stages of a pipeline, by their names, one after another over the minutes of training; returns the
    files, [] if there are no figures. Raises StoreError."""
    edges, placed = [0.0], list[StageCurves]()
    for stages in parts.values():
        end = edges[-1]
        for stage in stages:
            minutes = end + seconds(stage.times) / 60
            placed.append(replace(stage, runs=tuple(run.set_axis(minutes) for run in stage.runs)))
            end = float(minutes.iloc[-1])
        edges.append(end)
    figure = _figure(placed, "overview", 1, 11.0, 2.2)
    for axes in figure.axes:
        axes.set_xlim(0, max(1.01 * edges[-1], 1e-3))
        axes.label_outer()
        for number, (begin, end) in enumerate(pairwise(edges)):
            axes.axvspan(begin, end, color="#f2f2f2" if number % 2 else "white", zorder=0, linewidth=0)
    if figure.axes:
        figure.axes[-1].set_xlabel("minutes of training, without pauses")
        names = figure.axes[0].secondary_xaxis("top")
        # A name is moved to the right where it would be too close to the one before.
        least = 0.025 * edges[-1] * np.arange(len(parts))
        names.set_xticks(np.maximum.accumulate(edges[:-1] - least) + least, list(parts), rotation=40, ha="left")
    return _save(figure, heading, path)


def seconds(times: pd.Series) -> pd.Series:
    """Seconds since the stage's start. The start is assumed to be one median interval before the stage's first line,
    and a pause counts as one median interval."""
    between = times.diff()
    usual = float(between.median()) if len(times) > 1 else 1.0
    between = between.clip(lower=0).mask(between > max(PAUSE_S, PAUSE * usual), usual)
    return between.fillna(usual).cumsum()


def _figure(parts: Sequence[StageCurves], kind: str, columns: int, width: float, height: float) -> Figure:
    """The panels that have figures, each of this size in inches."""
    shown = [panel for panel in PANELS[kind] if any(name in part for part in parts for name in panel.figures)]
    rows, columns = math.ceil(len(shown) / columns), min(columns, len(shown))
    figure = Figure(figsize=(width * max(columns, 1), height * rows + 0.6), layout="constrained")
    for number, panel in enumerate(shown):
        _draw_panel(figure.add_subplot(rows, columns, number + 1), panel, parts)
    return figure


def _draw_panel(axes: Axes, panel: Panel, parts: Sequence[StageCurves]) -> None:
    """Draws the figures of `parts`, which follow each other on one axis and are not connected."""
    below: Any = 0.0
    for number, (name, label) in enumerate(panel.figures.items()):
        held_out = name.startswith(HELD_OUT)
        # Dashes let curves below show through, and differ not only by colour.
        look: dict[str, Any] = {
            "color": VERMILION if held_out else f"C{number}",
            "linestyle": (0, (4, 1.5)) if held_out else "-",
        }
        for curve in [part.spread(name) for part in parts if name in part]:
            curve = curve.clip(lower=LOWEST.get(panel.kind))
            steps, mean = curve.index, curve["mean"]
            if panel.kind == "added":
                axes.bar(steps, mean, np.diff(steps).max(initial=0.8), below, color=look["color"], label=label)
                below = below + mean
            elif panel.kind == "whole":
                axes.plot(steps, mean, drawstyle="steps-post", label=label, **look)
            else:
                marker = ("D" if held_out else "o") if len(curve) <= MARKED else ""
                axes.plot(steps, mean, marker=marker, label=label, **look)
                axes.fill_between(steps, curve["low"], curve["high"], color=look["color"], alpha=0.2, linewidth=0)
            label = "_"
    axes.set_title(panel.title)
    axes.set_ylabel(panel.unit)
    _scale(axes, panel.kind)
    if axes.get_legend_handles_labels()[1] != ["training"]:
        axes.legend(**({"loc": "upper left", "ncols": 3} if panel.kind == "added" else {}))


def _scale(axes: Axes, kind: str) -> None:
    lowest, highest = axes.dataLim.intervaly
    if kind == "log" and lowest > 0 and highest > 10 * lowest:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if highest < 1000 * lowest else (1.0,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif kind == "variance":
        axes.set_ylim(min(lowest, 0.0) - 0.05, 1.05)
        axes.axhline(0, color="#999999", linewidth=0.8)
    elif kind == "added":
        axes.set_ylim(0, 1.4 * highest)  # room for the legend
    elif kind == "share":
        axes.set_ylim(0, min(1.0, 1.15 * highest) + 0.02 if highest > 0 else 1.0)
    elif kind == "whole":
        axes.set_ylim(lowest - 0.3, highest + 0.3)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1) if kind == "share" else _short)


def _short(value: float, _position: object = None) -> str:
    """1,500 as 1.5k, because panels are small."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _save(figure: Figure, heading: str, path: Path) -> list[Path]:
    """Writes the figure as PNG and SVG, if it has panels. Raises StoreError."""
    if not figure.axes:
        return []
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12)
    paths = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    with boundary(StoreError, f"{path.parent}: a plot could not be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in paths:
            figure.savefig(one, metadata={"Date": None} if one.suffix == ".svg" else {})
    return paths
