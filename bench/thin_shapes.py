"""Scans, reductions and sorts of tensors with one tiny and one huge dimension: generated kernels beside PyTorch.

    python -m bench.thin_shapes --target cuda --out FOLDER [--seconds 360] [--only cumsum]

Sixty rows, operator × sizes × dimension. Each has the times of eager PyTorch, of `torch.compile`, of the generator's
first schedule, of the best and of the slowest that a search would try, as the judge's quick tier measures them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import Row, RowFile, markdown, measure_cases, shown
from bench.kernelbench.judges import Judging, worker_process
from bench.machine import describe
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import Tier
from kernel_assistant.targets.detect import detect

HUGE, LONG = 1 << 20, 1 << 18
#: Sizes and the dimension along which the operator works.
PLACES = (((4, HUGE), 0), ((4, HUGE), 1), ((HUGE, 4), 0), ((HUGE, 4), 1), ((LONG, 8), 0), ((1 << 15, 16, 8), 1))
OPERATORS = {
    "cumsum": "torch.cumsum(x, {dim})",
    "cumprod": "torch.cumprod(1 + x * 1e-4, {dim})",
    "cummax": "torch.cummax(x, {dim})[0]",
    "logcumsumexp": "torch.logcumsumexp(x, {dim}) * 2",
    "sum": "torch.sum(x, {dim})",
    "softmax": "torch.softmax(x, {dim})",
    "std": "torch.std(x, {dim})",
    "argmax": "torch.argmax(x, {dim})",
    "sort": "torch.sort(x, {dim})[0] * 2",
    "topk": "torch.topk(x, 2, {dim})[0] * 2",
}
MODULE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {call}


def get_inputs():
    return [torch.randn({sizes})]
"""
#: A row whose slowest schedule takes more than this times torch.compile's time is a defect.
SLOW = 10.0
TIMES = ("eager", "compile", "first", "best", "slowest")


@dataclass(frozen=True)
class Shape:
    operator: str
    sizes: tuple[int, ...]
    dim: int

    @property
    def name(self) -> str:
        return f"{self.operator} {' x '.join(map(str, self.sizes))} along {self.dim}"

    @property
    def module(self) -> str:
        return MODULE.format(call=OPERATORS[self.operator].format(dim=self.dim), sizes=", ".join(map(str, self.sizes)))


def main() -> int:
    given = _arguments()
    device, out = detect(given.target), RowFile(given.out / f"thin-shapes-{given.target}.jsonl")
    out.describe({"command": " ".join(sys.argv), "target": given.target, "machine": describe(device)})
    shapes = [Shape(operator, sizes, dim) for operator in OPERATORS for sizes, dim in PLACES]
    cases = [({"row": shape.name}, shape) for shape in shapes if given.only in shape.name]
    with TemporaryDirectory(prefix="ka-thin-") as folder:
        how = Judging(device, "fp32", "kernelbench", "auto", Path(folder))
        row = partial(_row, how, given.most)
        print(page(measure_cases(cases, row, out, [worker_process(how.cache)], given.seconds)))
    return 0


def _row(how: Judging, most: int, shape: Shape, worker: WorkerClient) -> Row:
    """Times in milliseconds, quotients, and schedules; or `refused`, the generator's reason."""
    path = how.cache / "shape.py"
    path.write_text(shape.module)
    with how.opened(f"{path}:Model", worker) as environment:
        graph, device = environment.graph, environment.device
        baseline = environment.baseline(compiled=True)
        times = {"eager_ms": baseline.eager_ms, "compile_ms": baseline.compile_ms or baseline.eager_ms}
        try:
            first = initial(graph, device.target, device)
        except Unsupported as error:
            return {"refused": str(error), "eager_ms": baseline.eager_ms}
        tried, wrong = _try(environment, first[:most])
        if not tried:
            return {"reason": "no schedule was right", "wrong": wrong}
        near = neighbours(graph, min(tried, key=lambda one: tried[one]), device)
        found, also = _try(environment, [one for one in near if one not in tried][: most // 2])
        tried, wrong = {**tried, **found}, {**wrong, **also}
    best, slowest = min(tried, key=lambda one: tried[one]), max(tried, key=lambda one: tried[one])
    return {
        **times,
        "first_ms": tried.get(first[0]),
        "best_ms": tried[best],
        "slowest_ms": tried[slowest],
        "of_eager": times["eager_ms"] / tried[best],
        "of_compile": times["compile_ms"] / tried[best],
        "of_better": min(times.values()) / tried[best],
        "slowest_of_compile": times["compile_ms"] / tried[slowest],
        "best": best.text(),
        "slowest": slowest.text(),
        "schedules": {one.text(): ms for one, ms in tried.items()},
        "wrong": wrong,
    }


def _try(environment: Environment, schedules: Sequence[Schedule]) -> tuple[dict[Schedule, float], dict[str, str]]:
    """Milliseconds of the right schedules, and what is wrong with the others."""
    times: dict[Schedule, float] = {}
    wrong: dict[str, str] = {}
    candidates = [emit(environment.graph, schedule) for schedule in schedules]
    for schedule, evaluation in zip(schedules, environment.evaluate(candidates, Tier.quick), strict=True):
        if evaluation.correct and evaluation.timing is not None:
            times[schedule] = evaluation.timing.candidate_ms
        else:
            wrong[schedule.text()] = evaluation.message
    return times, wrong


def page(rows: Sequence[Row]) -> str:
    """The table, and the rows in which something is slow or wrong."""
    lines = markdown(("row", *TIMES, "× compile", "slowest × compile", "best schedule"), map(_cells, rows))
    timed = [row for row in rows if "of_compile" in row]
    slow = [row for row in timed if row["slowest_of_compile"] < 1 / SLOW]
    behind = [row for row in timed if row["of_better"] < 0.9]
    wrong = [row for row in rows if row.get("wrong")]
    refused = sum("refused" in row for row in rows)
    lines += [
        "",
        f"{len(rows)} rows: {len(timed)} timed, {refused} refused by name, {len(wrong)} with a wrong schedule",
    ]
    for title, some in ((f"a schedule {SLOW:.0f} times slower", slow), ("best below 0.9", behind), ("wrong", wrong)):
        lines += [f"{title}: {row['row']}: {row.get('slowest')} {row.get('wrong', '')}" for row in some]
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    said = row.get("best") or row.get("refused") or row.get("reason") or row.get("problem", "")
    gains = [shown(row.get("of_compile")), shown(row.get("slowest_of_compile"))]
    return [row["row"], *(shown(row.get(f"{name}_ms"), ".4f") for name in TIMES), *gains, said]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for thin-shapes-TARGET.jsonl")
    parser.add_argument("--seconds", type=float, default=360.0, help="no row begins after so many")
    parser.add_argument("--most", type=int, default=12, help="schedules of a row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
