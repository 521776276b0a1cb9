"""Panels and pages with matplotlib, without pyplot: no window system is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant_training.tracking.curves import Curve, Numbers, Stage
from kernel_assistant_training.tracking.panels import TRAINING, Kind, Panel
from kernel_assistant_training.tracking.style import HELD_OUT, HELD_OUT_DASHES, RC, WORST, colour, scale, whole_steps

#: Points that are marked one by one; beyond it they are a range and a mean.
MARKED = 60
#: Parts of the axis whose range is drawn, and of all points that a mean is taken over.
PARTS, WINDOW = 100, 50
COLUMNS = 3
#: Inches of a panel.
WIDTH, HEIGHT = 4.2, 2.7
FORMATS = ("png", "svg")


def page(stage: Stage, panels: Sequence[Panel], heading: str, note: str, axis: str, path: Path) -> list[Path]:
    """A page with those panels that have something to show, as `path` with each suffix; [] where none has. `note`
    stands below the heading, `axis` names the steps. Raises StoreError."""
    shown = [(panel, found) for panel in panels if (found := of_panel(panel, stage.curves))]
    if not shown:
        return []
    columns = min(COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    with rc_context(RC):
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows + 0.6), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, (axes, (panel, found)) in enumerate(zip(grid, shown, strict=False)):
            draw_panel(axes, panel, [found])
            whole_steps(axes)
            if place >= len(shown) - columns:
                axes.set_xlabel(axis)
        for axes in grid[len(shown) :]:
            axes.set_visible(False)
        return save(figure, heading, note, path)


def draw_panel(axes: Axes, panel: Panel, parts: Sequence[Mapping[str, Curve]]) -> None:
    """`parts` follow each other on one axis and are not joined."""
    if panel.kind is Kind.added:
        for curves in parts:
            _added(axes, panel, curves)
    else:
        labelled: set[str] = set()
        for number, name in enumerate(panel.figures):
            for curves in (one for one in parts if name in one):
                label = "" if name in labelled else panel.figures[name]
                curve, hue = _limited(curves[name], panel.kind), colour(name, number)
                if panel.kind is Kind.whole:
                    axes.step(curve.steps, curve.values, color=hue, label=label, where="post")
                else:
                    draw_curve(axes, curve, hue, label, name)
                labelled.add(name)
    axes.set_title(panel.title)
    axes.set_ylabel(panel.unit)
    every = [curve for curves in parts for curve in curves.values()]
    scale(axes, panel.kind, min(float(one.low.min()) for one in every), max(float(one.high.max()) for one in every))
    axes.margins(x=0.02)
    names = {name for curves in parts for name in curves}
    if len(names) > 1 or {panel.figures[name] for name in names} != {TRAINING}:
        where = {"loc": "upper left", "ncols": 3} if panel.kind is Kind.added else {"loc": "best"}
        axes.legend(handlelength=1.4, borderaxespad=0.2, labelspacing=0.3, columnspacing=1.0, **where)


def draw_curve(axes: Axes, curve: Curve, hue: str, label: str, name: str = "") -> None:
    """Its mean, and the range of runs or of neighbouring points as a band."""
    marker, dashes = ("D", HELD_OUT_DASHES) if name.startswith(HELD_OUT) else ("o", "-")
    marker = marker if curve.steps.size <= MARKED else ""
    several = bool((curve.low < curve.high).any())
    if curve.steps.size <= MARKED or several:
        if several:
            axes.fill_between(*_ranges(curve), color=hue, alpha=0.2, linewidth=0)
        steps, values = (curve.steps, curve.values) if curve.steps.size <= MARKED else smooth(curve)
    else:
        axes.fill_between(*_ranges(curve), color=hue, alpha=0.25, linewidth=0)
        steps, values = smooth(curve)
    axes.plot(steps, values, color=hue, label=label, marker=marker, markersize=3.5, linestyle=dashes)


def smooth(curve: Curve) -> tuple[Numbers, Numbers]:
    """A centred mean over a part of the points, less of it at the ends, at as many places as can be told apart."""
    half = max(1, curve.steps.size // WINDOW // 2)
    total = np.concatenate([[0.0], np.cumsum(curve.values)])
    places = np.unique(np.linspace(0, curve.steps.size - 1, 3 * PARTS).astype(int))
    first, end = np.maximum(places - half, 0), np.minimum(places + half + 1, curve.steps.size)
    return curve.steps[places], (total[end] - total[first]) / (end - first)


def save(figure: Figure, heading: str, note: str, path: Path) -> list[Path]:
    figure.suptitle(heading + (f"\n{note}" if note else ""), x=0.01, ha="left", fontsize=12)
    paths = [path.with_name(f"{path.name}.{kind}") for kind in FORMATS]
    with boundary(StoreError, f"{path.parent}: a plot could not be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in paths:
            figure.savefig(one, dpi=110, metadata={"Date": None} if one.suffix == ".svg" else {})
    return paths


def of_panel(panel: Panel, curves: Mapping[str, Curve]) -> dict[str, Curve]:
    return {name: curves[name] for name in panel.figures if name in curves}


def _limited(curve: Curve, kind: Kind) -> Curve:
    if kind is not Kind.variance:
        return curve
    return Curve(curve.steps, *(np.maximum(one, WORST) for one in (curve.values, curve.low, curve.high)))


def _ranges(curve: Curve) -> tuple[Numbers, Numbers, Numbers]:
    """Where, lowest and highest: of every point, or of parts of the axis where there are many."""
    if curve.steps.size <= MARKED:
        return curve.steps, curve.low, curve.high
    parts = np.array_split(np.arange(curve.steps.size), min(PARTS, curve.steps.size // 2))
    steps = np.array([curve.steps[part].mean() for part in parts])
    # The first and the last part reach to the ends, so that the band does.
    steps[0], steps[-1] = curve.steps[0], curve.steps[-1]
    low = np.array([curve.low[part].min() for part in parts])
    return steps, low, np.array([curve.high[part].max() for part in parts])


def _added(axes: Axes, panel: Panel, curves: Mapping[str, Curve]) -> None:
    """Upon each other, over the steps that all have; of several runs the means. Few of them are bars."""
    steps = next(iter(curves.values())).steps
    for curve in curves.values():
        steps = np.intersect1d(steps, curve.steps)
    if not steps.size:
        return
    parts = [curve.values[np.isin(curve.steps, steps)] for curve in curves.values()]
    hues = [colour(name, number) for number, name in enumerate(panel.figures) if name in curves]
    labels = [panel.figures[name] for name in curves]
    if steps.size > MARKED:
        means = [smooth(Curve.of(list(steps), list(part))) for part in parts]
        axes.stackplot(means[0][0], *(mean for _, mean in means), colors=hues, labels=labels, linewidth=0)
        return
    width = 0.8 * float(np.diff(steps).min()) if steps.size > 1 else 0.8
    bottom = np.zeros_like(steps)
    for part, hue, label in zip(parts, hues, labels, strict=True):
        axes.bar(steps, part, width, bottom, color=hue, label=label)
        bottom = bottom + part
