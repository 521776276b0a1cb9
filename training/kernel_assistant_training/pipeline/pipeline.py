"""Runs the stages of a recipe, each as a process, until all are done, somebody stops it, or one fails."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.errors import InternalError
from kernel_assistant.session.training_run import RunState, Wish, ask, wish_of, write_status
from kernel_assistant_training.interrupts import Answering
from kernel_assistant_training.pipeline.board import Board, Row, clock
from kernel_assistant_training.pipeline.figures import Copier, in_words, lines, numbers
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.pipeline.process import Ended, Ending, StageProcess
from kernel_assistant_training.pipeline.starts import command, environment
from kernel_assistant_training.pipeline.state import LOG, Done, Progress, RunFolder

#: Between two writings of a stage's progress, and of the run's status.
KEEP_EVERY_S, SAY_EVERY_S = 2.0, 5.0
#: Of a failed stage's output.
_LAST_LINES = 8


class Outcome(str, Enum):
    ended = "ended"
    stopped = "stopped"  # by `control`
    interrupted = "interrupted"


class StageFailed(InternalError):
    """With the stage's own exit code."""

    def __init__(self, cause: str, next_step: str, code: int) -> None:
        super().__init__(cause, next_step)
        self.exit_code = code


class Pipeline:
    """`name` is the exported model's."""

    def __init__(self, run: RunFolder, board: Board, name: str) -> None:
        self._run, self._board, self._name = run, board, name
        self._signals: list[int] = []
        self._rows = [self._row(place) for place in range(len(run.recipe.stage))]
        self._state: RunState | None = None
        self._said = 0.0
        self._step = 0

    @property
    def signal(self) -> int:
        """The first that it was interrupted by, 0 for none."""
        return self._signals[0] if self._signals else 0

    def go(self, last: int) -> Outcome:
        """All stages up to number `last` that are not done. Raises StageFailed, UsageError, StoreError; the run's
        status says so too."""
        ask(self._run.path, Wish.go_on)
        at = 0
        with Answering(self._signals.append):
            try:
                for at in range(last + 1):
                    outcome = self._stage(at) if self._run.done(at) is None else None
                    if outcome is not None:
                        self._say(at, RunState.stopped, outcome.value)
                        return outcome
            except Exception as error:
                self._change(at, state="failed")
                self._say(at, RunState.failed, str(error).partition("\n")[0])
                raise
            finally:
                ask(self._run.path, Wish.go_on)
        whole = last + 1 == len(self._run.recipe.stage)
        self._say(last, RunState.ended if whole else RunState.stopped, "" if whole else "as far as it was asked for")
        return Outcome.ended

    def _stage(self, place: int) -> Outcome | None:
        """None where the next may begin."""
        run = self._run
        if self._signals or wish_of(run.path) is Wish.stop:
            return Outcome.interrupted if self._signals else Outcome.stopped
        folder = run.folder(place)
        before = run.progress(place) or Progress()
        words = command(run, place, before.seconds, self._name)
        folder.mkdir(exist_ok=True)
        progress = msgspec.structs.replace(before, starts=before.starts + 1)
        run.keep(place, progress)
        self._say(place, RunState.running)
        self._change(place, state="running", seconds=progress.seconds)
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"command": words}) + "\n")
        watched = _Watched(run, place, progress, self._seen)
        process = StageProcess(words, run.watched(place), folder / LOG, run.lock, environment(run.recipe))
        ended = process.wait(watched.look, lambda: wish_of(run.path), lambda: len(self._signals))
        run.keep(place, watched.progress)
        return self._over(place, ended, watched.progress)

    def _over(self, place: int, ended: Ended, progress: Progress) -> Outcome | None:
        run, stage, folder = self._run, self._run.recipe.stage[place], self._run.folder(place)
        if ended.ending is Ending.interrupted:
            self._change(place, state="stopped")
            return Outcome.interrupted
        kind = KINDS[stage.of_kind]
        model = kind.model(folder)
        at_limit = ended.ending is Ending.limit
        passed = at_limit and (model is not None or stage.optional or kind.grows)
        if ended.code and not passed:
            tail = [line for line in _output(folder) if line.strip()][-_LAST_LINES:]
            self._board.say("\n".join(["", f"{folder / LOG}:", *(f"  {line}" for line in tail)]))
            cause = f"stage {stage.name} failed (exit code {ended.code})"
            if at_limit:
                cause = f"stage {stage.name} was ended at its limit of {clock(stage.limit)} and left no model"
            step = "give it a higher limit" if at_limit else f"see {folder / LOG}"
            raise StageFailed(cause, f"{step}; the same command goes on", ended.code)
        if ended.ending is Ending.asked:
            self._change(place, state="stopped")
            return Outcome.stopped
        if kind.learns and model is None and not passed:
            cause = f"stage {stage.name} ended after {clock(progress.seconds)} without a model"
            raise StageFailed(
                cause, f"see {folder / LOG}; give it more time, or other options", InternalError.exit_code
            )
        done = Done(
            seconds=round(progress.seconds, 2),
            starts=progress.starts,
            how=Ending.limit.value if at_limit else Ending.itself.value,
            model=os.path.relpath(model, run.path) if model is not None else "",
            result=_result(folder),
        )
        run.keep(place, done)
        self._change(place, state="limit" if at_limit else "done")
        return None

    def _row(self, place: int) -> Row:
        stage, done = self._run.recipe.stage[place], self._run.done(place)
        begun = self._run.progress(place)
        state = "waiting" if done is None else ("limit" if done.how == Ending.limit.value else "done")
        seconds = done.seconds if done else begun.seconds if begun else 0.0
        newest: dict[str, float] = {}
        for line in lines(self._run.watched(place)) if begun else ():
            newest |= numbers(line)
        return Row(stage.name, state, seconds, stage.limit, in_words(newest))

    def _change(self, place: int, **changes: Any) -> None:
        before = self._rows[place]
        fields = {name: getattr(before, name) for name in ("name", "state", "seconds", "limit", "figures")}
        self._rows[place] = Row(**{**fields, **changes})
        self._board.show(self._rows)

    def _seen(self, watched: _Watched, paused: bool) -> None:
        """Shown at each look, and now and then in the run's status."""
        self._step = watched.copier.step
        state = RunState.paused if paused else RunState.running
        figures = in_words(watched.copier.newest)
        self._change(watched.place, state=state.value, seconds=watched.progress.seconds, figures=figures)
        if state is not self._state or time.monotonic() - self._said >= SAY_EVERY_S:
            self._say(watched.place, state)

    def _say(self, place: int, state: RunState, message: str = "") -> None:
        self._said, self._state = time.monotonic(), state
        write_status(self._run.path, self._run.recipe.stage[place].name, state, self._step, message)


class _Watched:
    """One stage while it runs: its seconds and its figures, told to `seen`."""

    def __init__(self, run: RunFolder, place: int, progress: Progress, seen: Callable[[_Watched, bool], None]) -> None:
        self.place, self.progress = place, progress
        self.copier = Copier(run.watched(place), run.path, progress.copied)
        self._run, self._seen = run, seen
        self._kept = 0.0

    def look(self, seconds: float, paused: bool) -> bool:
        """Whether it has had its time."""
        spent = self.progress.seconds + (0.0 if paused else seconds)
        new = self.copier.copy()
        self.progress = msgspec.structs.replace(self.progress, seconds=spent, copied=self.copier.at)
        if new or time.monotonic() - self._kept >= KEEP_EVERY_S:
            self._kept = time.monotonic()
            self._run.keep(self.place, self.progress)
        self._seen(self, paused)
        return spent >= self._run.recipe.stage[self.place].limit


def _output(folder: Path) -> list[str]:
    return (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()


def _result(folder: Path) -> dict[str, Any]:
    """What it ended its output with, where that is an object."""
    last = next((line for line in reversed(_output(folder)) if line.strip()), "")
    try:
        found = json.loads(last)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "command" not in found else {}
