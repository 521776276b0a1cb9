"""Measures the rows of `thin_shapes.py`: their numbers are read from stdin, results are printed as lines of JSON.

As in the judge, a block of calls walks around several sets of inputs and outputs, which together exceed the cache, and
launching counts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from kernel_assistant.environment.builds.compile import Binary, Compiler
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets.detect import detect
from tests.generator.harness import Built, Function, bindings, export

if TYPE_CHECKING:
    from bench.thin_shapes import Row

#: Seconds of a block of calls, and blocks of which the median counts.
BLOCK = {"cuda": 2e-3, "cpu": 1e-2}
BLOCKS = 5
#: Sets of inputs and outputs, at least and at most.
SETS = (2, 32)

FUNCTIONS: dict[str, Callable[[torch.Tensor, int], Any]] = {
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


def measure_rows(rows: Sequence[Row], target: str, most: int) -> None:
    """Answers each number on stdin with one line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench = _Bench(target, most)
    for line in sys.stdin:
        try:
            result = bench.row(rows[int(line)])
        except Exception as error:  # noqa: BLE001 - a row that fails is a row of the table
            result = {"problem": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


class _Bench:
    def __init__(self, target: str, most: int) -> None:
        self.target, self.most, self.device = target, most, detect(target)
        self.folder = Path(tempfile.mkdtemp(prefix="ka-thin-"))
        self.compiler = Compiler(self.device, choose("none"), self.folder, threading.Event())
        self.pool = ThreadPoolExecutor(os.cpu_count())

    def row(self, row: Row) -> dict[str, Any]:
        """Times in milliseconds, quotients, and schedules; or `refused`, the generator's reason."""
        function = FUNCTIONS[row.operator]
        model = Function(lambda x: function(x, row.dim))
        x = torch.randn(row.sizes, generator=torch.Generator().manual_seed(1))
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


def _summary(first: Schedule, tried: dict[Schedule, float], times: dict[str, float]) -> dict[str, Any]:
    if not tried:
        return {"problem": "no schedule was right"}
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
