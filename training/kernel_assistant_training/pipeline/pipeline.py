"""Runs the stages of a recipe, each in a process of its own, until all stages are done, the run is stopped, or a stage
fails."""

from __future__ import annotations

import json
import os
import time
from functools import partial

import msgspec

from kernel_assistant.errors import InternalError
from kernel_assistant.session.training_run import METRICS, RunState, TrainingCommand, ask, command_of, write_status
from kernel_assistant.session.training_stages import LOG, StageDone, StageProgress, clock
from kernel_assistant_training.interrupts import SignalHandling
from kernel_assistant_training.pipeline.board import Board, BoardRow
from kernel_assistant_training.pipeline.inputs import command
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.pipeline.process import StopCause, start, wait
from kernel_assistant_training.pipeline.run_folder import PipelineFolder
from kernel_assistant_training.run_control import drop_half_a_line
from kernel_assistant_training.tracking.metrics import copy_metrics, numbers, objects, read_metrics

#: Seconds between two writes of a stage's progress and of the run's status, if nothing changes.
KEEP_EVERY_S = 2.0
#: Lines of a failed stage's output that are shown.
_LAST_LINES = 8


class StageFailed(InternalError):
    """Raised if a stage failed. `exit_code` is that of the stage's process."""

    def __init__(self, cause: str, next_step: str, code: int = InternalError.exit_code) -> None:
        super().__init__(cause, next_step)
        self.exit_code = code


class Pipeline:
    """Runs the stages of the recipe in the folder `run` and reports their progress on `board`. `name` is the name of
    the exported model; `signals` are the numbers of the signals that this process has received."""

    def __init__(self, run: PipelineFolder, board: Board, name: str) -> None:
        self._run, self._board, self._name = run, board, name
        self.signals: list[int] = []
        self._rows = [self._row(index) for index in range(len(run.recipe.stage))]
        self._progress = StageProgress()
        self._written, self._step = 0.0, 0

    def go(self, last: int) -> StopCause:
        """Runs all stages up to number `last` that are not done; returns why the run ended. Raises StageFailed,
        UsageError for a missing input and StoreError if a file cannot be written, after writing the cause to the run's
        status."""
        index, folder = 0, self._run.path
        ask(folder, TrainingCommand.go_on)
        drop_half_a_line(folder / METRICS)
        with SignalHandling(self.signals.append):
            try:
                for index in range(last + 1):
                    cause = self._stage(index) if self._run.done(index) is None else StopCause.itself
                    if cause is not StopCause.itself:
                        self._write_status(index, RunState.stopped, cause.value)
                        return cause
            except Exception as error:
                self._show(index, "failed")
                self._write_status(index, RunState.failed, str(error).partition("\n")[0])
                raise
            finally:
                ask(folder, TrainingCommand.go_on)
        if last + 1 == len(self._rows):
            self._write_status(last, RunState.ended)
        else:
            self._write_status(last, RunState.stopped, "as far as it was asked for")
        return StopCause.itself

    def _stage(self, index: int) -> StopCause:
        """Runs stage number `index`. Returns `StopCause.itself` if the next stage may begin, else why the run must
        stop. Raises StageFailed."""
        run, folder = self._run, self._run.folder(index)
        if self.signals or command_of(run.path) is TrainingCommand.stop:
            return StopCause.interrupted if self.signals else StopCause.asked
        before = run.progress(index) or StageProgress()
        words = command(run, index, before.seconds, self._name)
        folder.mkdir(exist_ok=True)
        self._progress = msgspec.structs.replace(before, starts=before.starts + 1)
        run.keep(index, self._progress)
        self._write_status(index, RunState.running)
        self._show(index, "running")
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"command": words}) + "\n")
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = dict.fromkeys(threads, str(run.recipe.threads)) if run.recipe.threads else {}
        process = start(words, folder / LOG, run.lock, environment)
        code, cause = wait(process, run.watched(index), run.path, self.signals, partial(self._observe, index))
        run.keep(index, self._progress)
        return self._finish(index, code, cause)

    def _observe(self, index: int, seconds: float, paused: bool) -> bool:
        """Adds `seconds` to the time of a running stage unless it is paused, copies its metrics, and updates display
        and status. Returns whether the stage has reached its limit."""
        run, row, before = self._run, self._rows[index], self._progress
        copied, lines = copy_metrics(run.watched(index), run.path, before.copied)
        row.seconds = before.seconds + (0.0 if paused else seconds)
        self._progress = StageProgress(seconds=row.seconds, starts=before.starts, copied=copied)
        for line in lines:
            self._step = int(line["step"])
            row.newest |= numbers(line)
        state = RunState.paused if paused else RunState.running
        if lines or state.value != row.state or time.monotonic() - self._written >= KEEP_EVERY_S:
            run.keep(index, self._progress)
            self._write_status(index, state)
        self._show(index, state.value)
        return row.seconds >= row.limit

    def _finish(self, index: int, code: int, cause: StopCause) -> StopCause:
        """Stores the result of a stage whose process ended with exit code `code` for the reason `cause`; returns the
        same as `_stage`. Raises StageFailed if the stage failed or left no model."""
        run, stage, log = self._run, self._run.recipe.stage[index], self._run.folder(index) / LOG
        if cause is StopCause.interrupted or (cause is StopCause.asked and not code):
            self._show(index, "stopped")
            return cause
        kind, output = KINDS[stage.kind], [line for line in run.output(index) if line.strip()]
        model, at_limit = kind.model_in(run.folder(index)), cause is StopCause.limit
        passed = at_limit and (model is not None or stage.optional or kind.grows)
        if code and not passed:
            self._board.say("\n".join(["", f"{log}:", *(f"  {line}" for line in output[-_LAST_LINES:])]))
            late = f"was ended at its limit of {clock(stage.limit)} and left no model"
            problem, step = (
                (late, "give it a higher limit") if at_limit else (f"failed (exit code {code})", f"see {log}")
            )
            raise StageFailed(f"stage {stage.name} {problem}", f"{step}; the same command goes on", code)
        if kind.model and model is None and not passed:
            problem = f"stage {stage.name} ended after {clock(self._progress.seconds)} without a model"
            raise StageFailed(problem, f"see {log}; give it more time, or other options")
        done = StageDone(
            seconds=round(self._progress.seconds, 2),
            starts=self._progress.starts,
            how=(StopCause.limit if at_limit else StopCause.itself).value,
            model=os.path.relpath(model, run.path) if model is not None else "",
            result=next((one for one in objects(output[-1].encode()) if "command" not in one), {}),
        )
        run.keep(index, done)
        self._show(index, "limit" if at_limit else "done")
        return StopCause.itself

    def _row(self, index: int) -> BoardRow:
        stage, done, begun = self._run.recipe.stage[index], self._run.done(index), self._run.progress(index)
        row = BoardRow(stage.name, stage.limit)
        if done is not None:
            row.state = "limit" if done.how == StopCause.limit.value else "done"
        row.seconds = (done or begun or StageProgress()).seconds
        for line in read_metrics(self._run.watched(index)):
            row.newest |= numbers(line)
        return row

    def _show(self, index: int, state: str) -> None:
        self._rows[index].state = state
        self._board.show(self._rows)

    def _write_status(self, index: int, state: RunState, message: str = "") -> None:
        self._written = time.monotonic()
        write_status(self._run.path, self._rows[index].name, state, self._step, message)
