"""`python -m kernel_assistant_training plot RUN [RUN …]`: a run's figures as PNG and SVG; docs/training_metrics.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant_training.tracking.report import write_plots, write_seeds


def main(words: list[str]) -> None:
    """Names what it wrote."""
    about = "Draw a run, or several seeds of one run on one page: mean, and a band from the lowest to the highest."
    parser = argparse.ArgumentParser(prog="kernel_assistant_training plot", description=about)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a stage's folder, or a whole pipeline's")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of several runs; RUN/plots of one")
    options = parser.parse_args(words)
    if len(options.runs) == 1:
        found = write_plots(options.runs[0])
    elif options.out is None:
        raise UsageError("several runs are drawn together and have no folder in common", "name one: --out FOLDER")
    else:
        found = write_seeds(options.runs, options.out)
    sys.stdout.write("".join(f"{path}\n" for path in found))
