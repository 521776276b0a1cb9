"""How plots look: colours that the colour-blind can tell apart, quiet axes."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kernel_assistant_training.tracking.panels import Kind

#: Okabe and Ito, "Color Universal Design" (2008), without its yellow, which is too light for lines.
BLUE, GREEN, PURPLE, SKY, ORANGE = "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
VERMILION = "#D55E00"
COLOURS = (BLUE, GREEN, PURPLE, ORANGE, SKY)
HELD_OUT = "held_out_"
#: What lies under it shows through, and it does not differ by colour alone.
HELD_OUT_DASHES = (0, (4, 1.5))
#: Of explained variance, below which a curve is drawn as here.
WORST = -1.0
#: matplotlib's own type of it is a list of all its names.
RC: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#444444",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e3e3e3",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "savefig.facecolor": "white",
    # Text stays text, so that it can be searched; ids are the same each time.
    "svg.fonttype": "none",
    "svg.hashsalt": "kernel-assistant",
}


def colour(figure: str, number: int) -> str:
    """Of the figure that is `number` in its panel. Held out is vermilion everywhere."""
    return VERMILION if figure.startswith(HELD_OUT) else COLOURS[number % len(COLOURS)]


def scale(axes: Axes, kind: Kind, lowest: float, highest: float) -> None:
    """The axis of values between these."""
    if kind is Kind.log and lowest > 0 and highest > 10 * lowest:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if highest < 1000 * lowest else (1.0,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif kind is Kind.share:
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
        axes.set_ylim(0, min(1.0, 1.15 * highest) + 0.02 if highest > 0 else 1.0)
    elif kind is Kind.variance:
        axes.set_ylim(max(WORST, min(lowest, 0.0)) - 0.05, 1.05)
        axes.axhline(0, color="#999999", linewidth=0.8)
    elif kind is Kind.added:
        # Room for the legend.
        axes.set_ylim(0, 1.4 * axes.get_ylim()[1])
    elif kind is Kind.whole:
        axes.set_ylim(lowest - 0.3, highest + 0.3)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if kind is not Kind.share:
        axes.yaxis.set_major_formatter(FuncFormatter(_short))


def whole_steps(axes: Axes) -> None:
    first, last = axes.get_xlim()
    if last - first < 1:
        # There is one step.
        axes.set_xlim((first + last) / 2 - 1, (first + last) / 2 + 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(_short))


def _percent(value: float, _place: int | None) -> str:
    return f"{100 * value:.3g}%"


def _short(value: float, _place: int | None) -> str:
    """1,500 as 1.5k: a panel is small."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
