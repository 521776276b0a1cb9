"""Problems by lot in four columns: eager, torch.compile, Apache TVM and ours, timed in turn in one process.

Ours and TVM get the same seconds for their search, and the same problem, made smaller for two cores (`reduced.py`).
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import IsolatedProcess, Row
from bench.kernelbench import tvm
from bench.kernelbench.columns import Columns, Loaded, stage
from bench.kernelbench.exports import KEPT, Exports
from bench.kernelbench.judges import Judging
from bench.kernelbench.problems import Problem
from bench.kernelbench.reduced import TOO_LARGE, Reduced, fitted
from kernel_assistant.environment.worker_client import WorkerClient

#: Seconds for TVM's import and tasks beside its tuning, for the compilers and all times, and for a problem's sizes.
PREPARING_SECONDS, MEASURING_SECONDS, FITTING_SECONDS = 60.0, 150.0, 60.0
#: Characters of a reason.
REASON = 200


@dataclass(frozen=True)
class Case:
    """A problem for both sides. `ours` is the file with `ModelNew`, None if there is no candidate; `tuning` is the
    folder of MetaSchedule's database."""

    problem: Path
    ours: Path | None
    tuning: Path
    target: str
    numerics: str


@dataclass(frozen=True)
class BesideTvm:
    """How problems are measured: `seconds` are those of each search, `call_seconds` the most of a call in eager mode,
    and `exports` has a folder for each factor."""

    exports: Path
    how: Judging
    seconds: float
    call_seconds: float

    def of(self, problem: Problem, worker: WorkerClient) -> Row:
        """The problem's row. A failure of TVM is its `outcome` "failed" with the stage that failed in `reason`."""
        try:
            reduced = self._reduced(problem)
        except RuntimeError as error:
            return failure(error)
        copied = Problem(problem.level, reduced.path)
        exports = Exports(self.exports / f"divided by {reduced.factor}", self.how, self.seconds, inline=False)
        exported = exports.of(copied, worker)
        tuning = self.how.cache / "tvm" / f"level{problem.level}" / problem.name
        shutil.rmtree(tuning, ignore_errors=True)
        case = Case(reduced.path, exported.text, tuning, self.how.device.target, self.how.numerics)
        row: Row = {
            "constant": reduced.constant,
            "factor": reduced.factor,
            "loop": {name: exported.loop[name] for name in KEPT if name in exported.loop},
        }
        return row | self._measured(case)

    def _reduced(self, problem: Problem) -> Reduced:
        if self.how.device.target == "cuda":
            return Reduced(problem.path, "", 1)
        with IsolatedProcess(FITTING_SECONDS) as process:
            folder = self.how.cache / "reduced" / f"level{problem.level}"
            return process.call(fitted, problem.path, folder, self.call_seconds)

    def _measured(self, case: Case) -> Row:
        row: Row = {}
        try:
            with IsolatedProcess(self.seconds + PREPARING_SECONDS) as process:
                row = process.call(tuned, case, self.seconds)
        except RuntimeError as error:
            row = failure(error)
        try:
            with IsolatedProcess(MEASURING_SECONDS) as process:
                return row | process.call(measured, case, row)
        except RuntimeError as error:
            return failure(error) | row


def failure(error: RuntimeError) -> Row:
    """The row of a process that failed, with a short reason."""
    reason = " ".join(str(error).split()).removeprefix("RuntimeError: ").removeprefix("ValueError: ")
    return {"outcome": "too large" if reason == TOO_LARGE else "failed", "reason": reason[:REASON]}


def tuned(case: Case, seconds: float) -> Row:
    """TVM's tasks and the candidates that it measured. Raises RuntimeError, which names the stage."""
    its, module = _imported(Loaded.of(case.problem, None, case.target))
    began = time.monotonic()
    with stage("tuning"):
        row = tvm.tune(its, module, tvm.target_of(its, case.target), case.tuning, seconds)
    return {"tuning": row | {"seconds": round(time.monotonic() - began, 1)}}


def measured(case: Case, before: Row) -> Row:
    """Errors and times of all columns; of all but TVM's if `before`, the row of its tuning, is that of a failure. The
    others are timed without TVM first, so that they have times if a call of TVM does not end. Raises RuntimeError,
    which names the stage."""
    import torch

    columns = Columns(Loaded.of(case.problem, case.ours, case.target), case.numerics)
    columns.check("eager", columns.loaded.model, built=False)
    columns.check("compile", torch.compile(columns.loaded.model), built=False)
    if columns.loaded.ours is not None:
        columns.check("ours", columns.loaded.ours, built=False)
    times, reason = columns.times(), before.get("reason", "")
    if not reason:
        reason = _checked_tvm(columns, case, before["tuning"]["prepacked"])
        times = columns.times() if "tvm" in columns.calls else times
    outcome = "failed" if "tvm" not in times else "wrong" if reason else "measured"
    return {"outcome": outcome, "reason": reason, "checks": columns.checks, "times": times}


def _checked_tvm(columns: Columns, case: Case, prepacked: bool) -> str:
    """Adds the column of TVM; returns why it is not right, "" if it is."""
    try:
        its, module = _imported(columns.loaded)
        with stage("compiling by TVM"):
            column = tvm.compiled(its, module, tvm.target_of(its, case.target), case.tuning, prepacked)
    except RuntimeError as error:
        return str(failure(error)["reason"])
    columns.check("tvm", column, built=True)
    return str(columns.checks["tvm"]["why"])


def _imported(loaded: Loaded) -> tuple[Any, Any]:
    """TVM, and the problem in Relax. Raises RuntimeError, which names the stage."""
    import torch

    with stage("loading TVM"):
        its = tvm.load()
    with stage("torch.export"), torch.no_grad():
        exported = torch.export.export(loaded.model, loaded.inputs)
    with stage("import by Relax"):
        return its, tvm.imported(its, exported)
