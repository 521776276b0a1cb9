"""The command line: see the package."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.harness import RowFile
from bench.kernelbench.baselines import drawn_again, measure_modes
from bench.kernelbench.judges import Judging, judge
from bench.kernelbench.loop import run_loop
from bench.kernelbench.problems import DTYPES, Problem, chosen_problems
from bench.kernelbench.tables import drift, page, results
from kernel_assistant.targets.detect import detect


def main(words: Sequence[str] | None = None) -> int:
    given = _arguments(words)
    if given.command == "table":
        modes = RowFile(Path(given.baselines)).read() if given.baselines else []
        text = page(results(RowFile(Path(given.rows)).read(), modes))
        Path(given.out).write_text(text, encoding="utf-8")
        print(text)
        return 0
    try:
        levels = [int(level) for level in given.levels.split(",")]
        chosen = chosen_problems(Path(given.root).resolve(), levels, given.problems)
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return {"loop": _loop, "baselines": _baselines}[given.command](given, chosen)


def _loop(given: argparse.Namespace, chosen: list[Problem]) -> int:
    out = RowFile(Path(given.out).with_suffix(".jsonl"))
    judge(chosen, _judging(given), partial(run_loop, seconds=given.budget), out, given.judges, given.most_seconds)
    return 0


def _baselines(given: argparse.Namespace, chosen: list[Problem]) -> int:
    out = RowFile(Path(given.out).with_suffix(".jsonl"))
    if given.again_of:
        chosen = drawn_again(chosen, given.share, given.seed)
    judge(chosen, _judging(given), partial(measure_modes, seconds=given.seconds), out, given.judges, given.most_seconds)
    if given.again_of:
        print(drift(RowFile(Path(given.again_of)).read(), out.read()))
    return 0


def _judging(given: argparse.Namespace) -> Judging:
    cache = Path(given.cache or tempfile.mkdtemp(prefix="ka-kernelbench-"))
    cache.mkdir(parents=True, exist_ok=True)
    return Judging(detect(given.target), given.precision, given.numerics, given.sandbox, cache)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The product on the problems of KernelBench.")
    commands = parser.add_subparsers(dest="command", required=True)
    loop = _of_problems(commands.add_parser("loop", help="the product's own loop on each problem"))
    loop.add_argument("--budget", type=float, default=20.0, help="seconds of search for each problem")
    modes = _of_problems(commands.add_parser("baselines", help="eager and all modes of torch.compile"))
    modes.add_argument("--seconds", type=float, default=120.0, help="seconds for each mode, with its compilation")
    modes.add_argument("--again-of", help="rows of an earlier run: a share of the problems is measured again")
    modes.add_argument("--share", type=float, default=0.1, help="share of the problems that is measured again")
    modes.add_argument("--seed", type=int, default=0, help="seed of the lot that chooses them")
    table = commands.add_parser("table", help="the table of a run")
    table.add_argument("--rows", required=True, help="rows of the loop")
    table.add_argument("--baselines", help="rows of the modes")
    table.add_argument("--out", default="kernelbench.md", help="file of the table")
    return parser.parse_args(words)


def _of_problems(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--root", default="KernelBench", help="checkout of the repository")
    parser.add_argument("--levels", default="1,2,3", help="levels, such as 1,2")
    parser.add_argument(
        "--problems", default="", help="numbers such as 5,12,19-32, or of levels, such as 2:57,59 3:48; all if left out"
    )
    parser.add_argument("--precision", default="fp32", choices=list(DTYPES), help="dtype of parameters and inputs")
    parser.add_argument("--target", default="cuda", choices=["cpu", "cuda"], help="device of the judges")
    parser.add_argument("--judges", type=int, default=1, help="judges that share the device")
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="no problem begins after so many")
    parser.add_argument("--numerics", default="kernelbench", choices=["kernelbench", "strict", "paper"])
    parser.add_argument("--sandbox", default="auto", help="as for kernel-assistant")
    parser.add_argument("--cache", help="folder of builds, kept between runs")
    parser.add_argument("--out", required=True, help="name of the .jsonl that is written")
    return parser


if __name__ == "__main__":
    sys.exit(main())
