"""Scans, reductions and sorts of tensors with one tiny and one huge dimension: generated kernels beside PyTorch.

    python -m bench.thin_shapes --target cuda --out FOLDER [--seconds 360] [--only cumsum]
    python -m bench.thin_shapes --table docs/benchmarks/thin-shapes-cpu.json

Sixty rows, operator × sizes × dimension. Each has the times of eager PyTorch, of `torch.compile`, of the generator's
first schedule, of the best and of the slowest that a search would try. The rows run in a process of their own, which is
replaced where it dies or is silent for long.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from bench.harness import IsolatedProcess, Row, RowFile, markdown, measure_cases, shown
from bench.machine import describe
from kernel_assistant.environment.builds.compile import Binary, Compiler
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets.detect import detect
from tests.generator.harness import Built, Function, bindings, export

HUGE, LONG = 1 << 20, 1 << 18
#: Sizes and the dimension along which the operator works.
PLACES = (
    ((4, HUGE), 0),
    ((4, HUGE), 1),
    ((HUGE, 4), 0),
    ((HUGE, 4), 1),
    ((LONG, 8), 0),
    ((1 << 15, 16, 8), 1),
)
#: Seconds of a block of calls, and blocks of which the median counts.
BLOCK = {"cuda": 2e-3, "cpu": 1e-2}
BLOCKS = 5
#: Sets of inputs and outputs, at least and at most.
SETS = (2, 32)

OPERATORS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "cumsum": torch.cumsum,
    "cumprod": lambda x, dim: torch.cumprod(1 + x * 1e-4, dim),
    "cummax": lambda x, dim: torch.cummax(x, dim)[0],
    "logcumsumexp": lambda x, dim: torch.logcumsumexp(x, dim) * 2,
    "sum": torch.sum,
    "softmax": F.softmax,
    "std": torch.std,
    "argmax": torch.argmax,
    "sort": lambda x, dim: torch.sort(x, dim)[0] * 2,
    "topk": lambda x, dim: torch.topk(x, 2, dim)[0] * 2,
}


#: Seconds without an answer after which the process of the rows is replaced.
SILENT = {"cuda": 90.0, "cpu": 240.0}
#: A row whose slowest schedule takes more than this times torch.compile's time is a defect.
SLOW = 10.0
TIMES = ("eager", "compile", "first", "best", "slowest")


def main() -> int:
    given = _arguments()
    if given.table:
        print(page(RowFile(given.table).read()))
        return 0
    out = RowFile(given.out / f"thin-shapes-{given.target}.jsonl")
    out.describe({"command": " ".join(sys.argv), "target": given.target, "machine": describe(detect(given.target))})
    named = {
        f"{one} {' x '.join(map(str, sizes))} along {dim}": (one, sizes, dim)
        for one in OPERATORS
        for sizes, dim in PLACES
    }
    cases = [({"row": name}, case) for name, case in named.items() if given.only in name]
    measure = partial(_isolated, given.target, given.most)
    print(page(measure_cases(cases, measure, out, [IsolatedProcess(SILENT[given.target])], given.seconds)))
    return 0


def _isolated(target: str, most: int, case: tuple[str, tuple[int, ...], int], process: IsolatedProcess) -> Row:
    return process.call(measure_row, target, most, *case)


def measure_row(target: str, most: int, operator: str, sizes: tuple[int, ...], dim: int) -> Row:
    """A row, in the process of the rows."""
    return _bench(target, most).row(operator, sizes, dim)


@cache
def _bench(target: str, most: int) -> _Bench:
    return _Bench(target, most)


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
    parser.add_argument("--table", type=Path, help="only print the table of these rows")
    return parser.parse_args()


class _Bench:
    """Compiles and times schedules. As in the judge, a block of calls walks around several sets of inputs and outputs,
    which together exceed the cache, and launching counts."""

    def __init__(self, target: str, most: int) -> None:
        self.target, self.most, self.device = target, most, detect(target)
        self.folder = Path(tempfile.mkdtemp(prefix="ka-thin-"))
        self.compiler = Compiler(self.device, choose("none"), self.folder, threading.Event())
        self.pool = ThreadPoolExecutor(os.cpu_count())

    def row(self, operator: str, sizes: tuple[int, ...], dim: int) -> Row:
        """Times in milliseconds, quotients, and schedules; or `refused`, the generator's reason."""
        function = OPERATORS[operator]
        model = Function(lambda x: function(x, dim))
        x = torch.randn(sizes, generator=torch.Generator().manual_seed(1))
        graph = export(model, x)
        torch._dynamo.reset()
        times = {"eager_ms": self._of_module(model, x), "compile_ms": self._of_module(torch.compile(model), x)}
        try:
            first = initial(graph, self.target, self.device)
        except Unsupported as error:
            return {"refused": str(error), "eager_ms": times["eager_ms"]}
        want, bound = _expected(model, x)
        tried, wrong = self._try(graph, first[: self.most], x, want, bound)
        if tried:
            best = min(tried, key=lambda one: tried[one])
            more = [one for one in neighbours(graph, best, self.device) if one not in tried][: self.most // 2]
            found, also = self._try(graph, more, x, want, bound)
            tried, wrong = {**tried, **found}, {**wrong, **also}
        return {**times, **_summary(first[0], tried, times), "wrong": wrong}

    def _try(
        self, graph: OpGraph, schedules: Sequence[Schedule], x: torch.Tensor, want: torch.Tensor, bound: float
    ) -> tuple[dict[Schedule, float], dict[str, str]]:
        """Milliseconds of the right schedules, and what is wrong with the others."""
        builds = list(self.pool.map(lambda schedule: self.compiler.build(emit(graph, schedule)), schedules))
        times: dict[Schedule, float] = {}
        wrong: dict[str, str] = {}
        for number, (schedule, build) in enumerate(zip(schedules, builds, strict=True)):
            if not isinstance(build, Binary):
                wrong[schedule.text()] = build.diagnostics[0].message
                continue
            path = self.folder / f"{time.monotonic_ns()}-{number}-{build.name}"
            path.write_bytes(build.content)
            built = Built(graph, schedule, self.folder, path)
            got = built({"x0": x})[0]
            error = float((got.double() - want).abs().max()) if got.numel() else 0.0
            if not error <= bound:
                wrong[schedule.text()] = f"error {error:.3g}, allowed {bound:.3g}"
                continue
            times[schedule] = self._of_candidate(built, x)
        return times, wrong

    def _sets(self, x: torch.Tensor, result: int) -> int:
        wanted = -(-4 * max(self.device.cache_bytes, 1) // (x.nbytes + result))
        return min(max(wanted, SETS[0]), SETS[1])

    def _of_module(self, call: Callable[..., Any], x: torch.Tensor) -> float:
        with torch.no_grad():
            size = call(x.to(self.target)).nbytes
            inputs = [x.to(self.target) for _ in range(self._sets(x, size))]
            return self._milliseconds([lambda one=one: call(one) for one in inputs])

    def _of_candidate(self, built: Built, x: torch.Tensor) -> float:
        values = bindings(built.graph, torch.nn.Module(), (x,))
        size = sum(output.nbytes for output in built.bind(values)[2])
        bound = [built.bind(values) for _ in range(self._sets(x, size))]
        return self._milliseconds([lambda one=one: one[0].run(one[1]) for one in bound])

    def _milliseconds(self, calls: Sequence[Callable[[], object]]) -> float:
        """Median milliseconds of a call, in blocks that walk around `calls`."""
        self._block(calls, len(calls))
        once = self._block(calls, len(calls)) / len(calls)
        length = min(max(int(BLOCK[self.target] / max(once, 1e-7)), len(calls) if once < 1e-2 else 1), 4096)
        return 1e3 * median(self._block(calls, length) / length for _ in range(BLOCKS))

    def _block(self, calls: Sequence[Callable[[], object]], length: int) -> float:
        """Seconds of `length` calls, one set after another."""
        if self.target == "cpu":
            began = time.perf_counter()
            for number in range(length):
                calls[number % len(calls)]()
            return time.perf_counter() - began
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for number in range(length):
            calls[number % len(calls)]()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


def _expected(model: torch.nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The result in float64, and the largest error that is allowed: 1e-4 of the largest value, or twice PyTorch's."""
    with torch.no_grad():
        want, own = model(x.double()).double(), model(x).double()
    if not model(x[:1]).is_floating_point():
        return own, 0.0
    return want, max(1e-4 * float(want.abs().max()), 2 * float((own - want).abs().max()))


def _summary(first: Schedule, tried: dict[Schedule, float], times: dict[str, float]) -> Row:
    if not tried:
        return {"reason": "no schedule was right"}
    best, slowest = min(tried, key=lambda one: tried[one]), max(tried, key=lambda one: tried[one])
    better = min(times.values())
    return {
        "first_ms": tried.get(first, float("nan")),
        "best_ms": tried[best],
        "slowest_ms": tried[slowest],
        "of_eager": times["eager_ms"] / tried[best],
        "of_compile": times["compile_ms"] / tried[best],
        "of_better": better / tried[best],
        "slowest_of_compile": times["compile_ms"] / tried[slowest],
        "best": best.text(),
        "slowest": slowest.text(),
        "schedules": {one.text(): ms for one, ms in tried.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
