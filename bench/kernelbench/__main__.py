"""The command line: see the package."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.harness import RowFile
from bench.kernelbench import checkout, hidden_inputs, tvm
from bench.kernelbench.baselines import drawn_again, measure_modes
from bench.kernelbench.beside_tvm import BesideTvm
from bench.kernelbench.evaluated_table import summary
from bench.kernelbench.exports import Exports
from bench.kernelbench.judges import Judging, judge, judge_by
from bench.kernelbench.loop import run_loop
from bench.kernelbench.official import Evaluation
from bench.kernelbench.problems import DTYPES, Problem, chosen_problems, drawn_evenly
from bench.kernelbench.tables import drift, page, results
from kernel_assistant.targets.detect import detect

_ON_CPU = "on the CPU correctness alone, since KernelBench times on NVIDIA GPUs only"


def main(words: Sequence[str] | None = None) -> int:
    given = _arguments(words)
    if given.command == "table":
        return _table(given)
    try:
        levels = [int(level) for level in given.levels.split(",")]
        chosen = chosen_problems(Path(given.root).resolve(), levels, given.problems)
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    commands = {"loop": _loop, "baselines": _baselines, "official": _official, "verified": _official, "tvm": _tvm}
    return commands[given.command](given, chosen)


def _table(given: argparse.Namespace) -> int:
    loop, modes, official, verified = (
        RowFile(Path(name)).read() if name else []
        for name in (given.rows, given.baselines, given.official, given.verified)
    )
    parts = [page(results(loop, modes))] if loop else []
    parts += [summary("KernelBench's own evaluation", official)] if official else []
    parts += [summary("Four distributions, reference with TF32", verified)] if verified else []
    if not parts:
        print("no rows: name files of rows that are not empty", file=sys.stderr)
        return 2
    text = "\n".join(parts)
    Path(given.out).write_text(text, encoding="utf-8")
    print(text)
    return 0


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


def _official(given: argparse.Namespace, chosen: list[Problem]) -> int:
    root = Path(given.root).resolve()
    if problem := checkout.lacking(root):
        print(problem, file=sys.stderr)
        return 2
    if given.target == "cpu":
        print("KernelBench times on NVIDIA GPUs only: here its check of correctness runs, without times", flush=True)
    out = RowFile(Path(given.out).with_suffix(".jsonl"))
    how = replace(_judging(given), training=True)
    exports = Exports(Path(given.exports), how, given.budget, inline=given.form == "inline")
    evaluate = checkout.official if given.command == "official" else hidden_inputs.verified
    one = Evaluation(exports, root, evaluate, given.inputs, given.judges)
    judge_by(drawn_evenly(chosen, given.count, given.seed), how, one.of, out, given.judges, given.most_seconds)
    return 0


def _tvm(given: argparse.Namespace, chosen: list[Problem]) -> int:
    if problem := tvm.lacking():
        print(problem, file=sys.stderr)
        return 2
    out, how = RowFile(Path(given.out).with_suffix(".jsonl")), _judging(given)
    one = BesideTvm(Path(given.exports or how.cache / "exports"), how, given.seconds, given.call_seconds)
    judge_by(drawn_evenly(chosen, given.count, given.seed), how, one.of, out, 1, given.most_seconds)
    return 0


def _judging(given: argparse.Namespace) -> Judging:
    cache = Path(given.cache or tempfile.mkdtemp(prefix="ka-kernelbench-")).absolute()
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
    _of_exports(commands.add_parser("official", help=f"evaluation by KernelBench's own code; {_ON_CPU}"))
    _of_exports(commands.add_parser("verified", help=f"four distributions, and a reference with TF32; {_ON_CPU}"))
    _of_tvm(commands.add_parser("tvm", help="eager, torch.compile, Apache TVM and ours, timed in turn"))
    table = commands.add_parser("table", help="the table of a run")
    table.add_argument("--rows", help="rows of the loop")
    table.add_argument("--baselines", help="rows of the modes")
    table.add_argument("--official", help="rows of KernelBench's own evaluation")
    table.add_argument("--verified", help="rows of the four distributions")
    table.add_argument("--out", default="kernelbench.md", help="file of the table")
    return parser.parse_args(words)


def _of_exports(parser: argparse.ArgumentParser) -> None:
    _of_problems(parser, ["fp32"])
    parser.add_argument("--count", type=int, default=60, help="problems that are drawn, evenly over the levels")
    parser.add_argument("--seed", type=int, default=0, help="seed of the lot that draws them")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of search for each problem")
    parser.add_argument(
        "--exports", required=True, help="folder of the exported candidates; those there are not searched"
    )
    parser.add_argument(
        "--form", default="inline", choices=["inline", "package"], help="form of an export where both are possible"
    )
    parser.add_argument(
        "--inputs", default="host", choices=["host", "device"], help="place where the reference's inputs are made"
    )


def _of_tvm(parser: argparse.ArgumentParser) -> None:
    _of_problems(parser, ["fp32"])
    parser.set_defaults(target="cpu")
    parser.add_argument("--count", type=int, default=30, help="problems that are drawn, evenly over the levels")
    parser.add_argument("--seed", type=int, default=0, help="seed of the lot that draws them")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each search, MetaSchedule's and ours")
    parser.add_argument("--call-seconds", type=float, default=0.3, help="most seconds of an eager call on the CPU")
    parser.add_argument("--exports", help="folder of our candidates, below the cache if left out")


def _of_problems(parser: argparse.ArgumentParser, precisions: Sequence[str] = tuple(DTYPES)) -> argparse.ArgumentParser:
    parser.add_argument("--root", default="KernelBench", help="checkout of the repository")
    parser.add_argument("--levels", default="1,2,3", help="levels, such as 1,2")
    parser.add_argument(
        "--problems", default="", help="numbers such as 5,12,19-32, or of levels, such as 2:57,59 3:48; all if left out"
    )
    parser.add_argument("--precision", default="fp32", choices=precisions, help="dtype of parameters and inputs")
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
