"""Checks and times changes that need no kernel (`free_changes.py`) on an open task: docs/free_wins.md."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._dynamo.utils import counters

from ..measuring.load import OtherLoad
from ..measuring.passes import beside, expected_seconds
from ..measuring.profiling import Profiler
from ..measuring.repeated_measurement import interval_of
from ..measuring.statistics import median
from ..measuring.timing import TimedSubject, TorchSubject
from ..opening.open_steps import tensors_of
from ..opening.open_task import OpenTask
from ..process.worker_errors import first_line, is_out_of_memory
from ..verifying.cases import Case, fresh_seed
from ..verifying.verification import ExpectedOutputs, WorstErrors, expect
from .free_changes import COMPILE, Change, changes_for, compiled, scopes

ROUNDS = 14
MOST_SECONDS = 4.0
#: Calls before anything is measured: a CUDA graph is recorded in the second.
WARM_CALLS = 3
#: Versions of one function that torch.compile keeps; beyond its default of 8 it would silently run eagerly.
MOST_VERSIONS = 64
NO_TIME = "not measured: no time"

Call = Callable[..., Any]
Row = dict[str, Any]


class FreeWins:
    """Checks and times the changes that may make one task faster without a kernel. `measure` restores PyTorch's
    settings afterwards."""

    def __init__(self, task: OpenTask, profiler: Profiler, numerics: str) -> None:
        self.task, self._profiler, self._numerics = task, profiler, numerics
        self.changes = changes_for(task)
        self._plain = compiled(task, ())

    def offered(self) -> list[Row]:
        """Returns one dict for each change, in the order in which to try them: `name`, `write` (the line of code that
        applies it), and `costly` (whether it takes long to try)."""
        return [
            {"name": change.name, "write": change.write, "costly": change.costly} for change in self.changes.values()
        ]

    def measure(self, names: Sequence[str], seconds: float) -> Row:
        """Checks and times the changes in `names`, applied together. Returns the fields of a FreeWin as a dict, and
        `compile_seconds`; if something fails, `passes` is False and `note` says why.

        `seconds` is the time available; compiling cannot be interrupted from here. Raises only an error after which
        this process cannot use the GPU any more.
        """
        deadline = time.monotonic() + seconds
        chosen = [change for change in self.changes.values() if change.name in names and change.name != COMPILE]
        row = _row(names, chosen or [self.changes[COMPILE]])
        try:
            with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=MOST_VERSIONS):
                self._measure(chosen, row, deadline)
        except Exception as error:
            if type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error):
                raise
            why = "out of memory" if is_out_of_memory(error) else first_line(error)
            row |= {"passes": False, "note": f"not measured: {why}"}
        finally:
            self._clean_up()
        return row

    def close(self) -> None:
        """Drops the code that torch.compile generated, because the worker process stays alive after its task."""
        self.changes = {}
        torch._dynamo.reset()

    def _measure(self, chosen: list[Change], row: Row, deadline: float) -> None:
        skips = counters["inductor"]["cudagraph_skips"]
        began = time.monotonic()
        self._warm(self._plain)
        expected = self._expected()  # computed with the current settings
        with scopes(chosen):
            call = compiled(self.task, chosen) if chosen else self._plain
            self._warm(call)
            row["compile_seconds"] = time.monotonic() - began
            row |= self._checked(call, expected)
        if not row["passes"]:
            row["note"] = "changes results"
        elif counters["inductor"]["cudagraph_skips"] > skips:
            row["note"] = "torch.compile could not use a CUDA graph here"
        self._time(call, chosen, row, deadline)

    def _warm(self, call: Call) -> None:
        sets = self._profiler.sets
        for index in range(WARM_CALLS):
            args, kwargs = self.task.unflatten(sets.inputs[index % sets.count])
            call(*args, **kwargs)

    def _expected(self) -> ExpectedOutputs:
        """Returns the declared inputs, drawn with a fresh seed, and their expected outputs."""
        expected = expect(self.task, Case(0, "declared", None, fresh_seed()))
        if expected is None:  # pragma: no cover - the declared case is not optional
            raise RuntimeError("the declared inputs do not match the exported graph")
        return expected

    def _checked(self, call: Call, expected: ExpectedOutputs) -> Row:
        """Calls `call` on the declared inputs. Returns a dict with the errors of its outputs, and in `passes` whether
        they are within the task's error policy. Raises ValueError if dtypes or shapes differ."""
        args, kwargs = self.task.unflatten(expected.tensors)
        outputs = [output.clone() for output in tensors_of(call(*args, **kwargs))]
        errors, results = WorstErrors(), []
        # The new values of buffers come after the outputs and are not compared here.
        users = len(expected.reference) - len(self.task.held.written)
        for position, got in enumerate(_alike(outputs, expected.reference[:users])):
            results.append(expected.compare(position, got, self._numerics))
            errors.add(results[-1], got.dtype)
        passes = all(result.passed for result in results)
        return {"passes": passes, "error_vs_fp64": errors.error, "error_ratio": errors.ratio}

    def _time(self, call: Call, chosen: list[Change], row: Row, deadline: float) -> None:
        """Times the changes against plain torch.compile and eager mode; without changes, times plain torch.compile
        against eager mode. Writes milliseconds, speed-ups and their intervals into `row`, or only a note if `deadline`
        (a time of `time.monotonic`) is too near."""
        target = self._profiler.target
        calls = [self.task.unflatten(tensors) for tensors in self._profiler.sets.inputs]
        eager = TorchSubject("eager", self.task.model, calls, target)
        plain = TorchSubject(COMPILE, self._plain, calls, target)
        mine = ScopedSubject(TorchSubject("change", call, calls, target), lambda: scopes(chosen)) if chosen else plain
        others: list[TimedSubject] = [plain, eager] if chosen else [eager]
        left = deadline - time.monotonic()
        if left < expected_seconds(target, [mine, *others]):
            row["note"] = _joined(row["note"], NO_TIME)
            return
        load = OtherLoad([os.getpid()])
        series = beside(
            target,
            mine,
            others,
            sets=len(calls),
            rounds=ROUNDS,
            most_seconds=min(MOST_SECONDS, left),
            lock=self._profiler.lock,
        )
        row["note"] = _joined(row["note"], load.warning() if target == "cpu" else "")
        row["ms"] = median(series.seconds(mine.name)) * 1e3
        for baseline in others:
            estimate, low, high = interval_of(series, baseline.name, mine.name)
            row |= {f"speedup_vs_{baseline.name}": estimate, f"speedup_vs_{baseline.name}_ci": [low, high]}

    def _clean_up(self) -> None:
        """Frees memory: a recorded CUDA graph keeps the memory of its calls although it is not called again."""
        gc.collect()
        if self.task.device.startswith("cuda"):
            from torch._inductor.cudagraph_trees import reset_cudagraph_trees

            reset_cudagraph_trees()
            torch.cuda.empty_cache()


class ScopedSubject:
    """A callable that can be timed (a subject), each time within `scope()`, a context manager that changes PyTorch's
    settings."""

    def __init__(self, subject: TimedSubject, scope: Callable[[], AbstractContextManager[None]]) -> None:
        self.name, self._subject, self._scope = subject.name, subject, scope

    def run(self, first: int, count: int) -> float:
        with self._scope():
            return self._subject.run(first, count)

    def wake(self) -> bool:
        return self._subject.wake()


def _row(names: Sequence[str], chosen: list[Change]) -> Row:
    return {
        "name": names[0] if len(names) == 1 else "together",
        "write": _write(chosen),
        "ms": None,
        "speedup_vs_eager": None,
        "speedup_vs_eager_ci": None,
        "speedup_vs_compile": None,
        "speedup_vs_compile_ci": None,
        "error_vs_fp64": None,
        "error_ratio": None,
        "passes": False,
        "note": _joined(*(change.note for change in chosen)),
        "compile_seconds": 0.0,
    }


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _write(chosen: list[Change]) -> str:
    return chosen[0].write if len(chosen) == 1 else " + ".join(change.name for change in chosen)


def _alike(outputs: list[torch.Tensor], references: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns `outputs`. Raises ValueError if their number, dtypes or shapes differ from those of `references`."""
    for got, reference in zip(outputs, references, strict=True):
        if (got.dtype, got.shape) != (reference.dtype, reference.shape):
            raise ValueError(f"an output is {got.dtype} {list(got.shape)}, not {reference.dtype}")
    return outputs
