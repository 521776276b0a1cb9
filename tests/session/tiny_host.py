"""A real host around a tiny job: run as `python tiny_host.py`. The job follows the instruction in the first line of the
task's text, which may be a comment.

`tick N`: emit N progress lines, 20 ms apart, and store a step after each; stored steps of an earlier start count as
done. `wait`: continue until cancelled. `hear`: continue until a user sends a message, and report it. `fail`, `bug`,
`fill`: raise an error, fail with a bug, fill the event log's part of the disk.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from kernel_assistant.config import resolve
from kernel_assistant.errors import Cancelled, MissingError
from kernel_assistant.events import ModelReplied, Progress, Warned
from kernel_assistant.records import (
    Accuracy,
    Candidate,
    Evaluation,
    JobOutcome,
    Launch,
    OptimizeResult,
    Outcome,
    Plan,
    Stage,
    Step,
    Tier,
)
from kernel_assistant.records.candidate import BufferSpec
from kernel_assistant.session.host import serve


def step(turn):
    x, y = (BufferSpec(name=name, dtype="f32", shape=("4",)) for name in ("x", "y"))
    launch = Launch(symbol="f", args=(("x", "x"), ("y", "y")))
    plan = Plan(target="cpu", dims=(), inputs=(x,), outputs=(y,), launches=(launch,))
    candidate = Candidate(plan=plan, sources={"f.cpp": f"// {turn}\n"})
    exact = {"error": 0, "reference_error": 0, "relative_error": 0, "error_ratio": 1}
    accuracy = Accuracy(**exact, inputs_tried=1, shapes_tried=1, bit_reproducible=True)
    right = {"tier": Tier.quick, "outcome": Outcome.correct, "stage": Stage.verify, "message": "ok"}
    evaluation = Evaluation(candidate=candidate.hash(), accuracy=accuracy, **right)
    return Step(turn=turn, message="", candidates=(candidate,), evaluations=(evaluation,), started=turn, ended=turn + 1)


def run(task, options, *, emit, cancel, services):
    verb, _, number = task.content.lstrip("# ").splitlines()[0].partition(" ")
    emit(Progress(phase="open", message=f"pid {os.getpid()}"))
    if verb == "fail":
        raise MissingError("no compiler", "install one")
    if verb == "bug":
        raise ZeroDivisionError("by design")
    if verb == "fill":
        emit(Warned(message="x" * int(number)))
    if verb == "wait":
        cancel.wait(60)
    while verb == "hear" and not services.said and not cancel.wait(0.02):
        pass
    for words in services.said:
        emit(ModelReplied(conversation=1, turn=1, role="user", text=words))
    for turn in range(len(services.resume_steps), int(number) if verb == "tick" else 0):
        if cancel.is_set():
            raise Cancelled("cancelled")
        emit(Progress(phase="search", message=f"turn {turn}"))
        services.store.add_step(services.job, step(turn))
        time.sleep(0.02)
    outcome = JobOutcome.cancelled if cancel.is_set() else JobOutcome.no_candidate
    done = len(services.store.steps(services.job))
    about = {"task": task.name, "target": task.target, "device": "tiny", "artifacts": {"job": services.job}}
    return OptimizeResult(**about, outcome=outcome, best=None, evaluations=done, seconds=0.0, stop_reason="finished")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(serve(resolve()[0], run, lambda task: task.target))
