"""The events of a job, in order. The event log has one JSON line for each event; `seq` numbers the events from 1."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kernel_assistant.records.evaluation import Evaluation
from kernel_assistant.records.free_win import FreeWin
from kernel_assistant.records.result import OptimizeResult
from kernel_assistant.records.spending import Spending


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of every event of a job. `time` is in seconds since the epoch; the session host fills in `seq` and `job`."""

    seq: int = 0
    job: str = ""
    time: float = 0.0


class JobQueued(Event, frozen=True, kw_only=True, tag="job_queued"):
    task: str
    target: str
    position: int = 0


class JobStarted(Event, frozen=True, kw_only=True, tag="job_started"):
    """The job has started. `budget` is the time for the whole job in seconds, beginning at `time`; 0 if there is no
    limit."""

    device: str
    resumed: bool = False
    budget: float = 0.0

    @property
    def ends(self) -> float:
        """The time at which the budget is used up, in seconds since the epoch; 0 without a budget."""
        return self.time + self.budget if self.budget else 0.0


class Progress(Event, frozen=True, kw_only=True, tag="progress"):
    """A phase of the job began. `phase` is "open", "baseline", "compile", "search", "confirm", "apply" or "free",
    `message` a text for the user.

    The value "model" is no phase: it reports a request to a model.
    """

    phase: str
    message: str


class TaskOpened(Event, frozen=True, kw_only=True, tag="task_opened"):
    graph: str
    nodes: int
    facts: dict[str, Any] = {}


class BaselineMeasured(Event, frozen=True, kw_only=True, tag="baseline_measured"):
    eager_ms: float
    compile_ms: float | None
    floor_ms: float
    roofline_of_compile: float = 0.0


class CandidateEvaluated(Event, frozen=True, kw_only=True, tag="candidate_evaluated"):
    """An evaluation has ended. `conversation` is the number (from 1) of the conversation that wrote the candidate, 0 if
    no conversation wrote it, and for the confirmation at the end of the job."""

    turn: int
    schedule: str
    origin: str
    evaluation: Evaluation
    conversation: int = 0


class BestImproved(Event, frozen=True, kw_only=True, tag="best_improved"):
    candidate: str
    schedule: str
    candidate_ms: float
    speedup_vs_eager: float
    speedup_vs_compile: float | None
    confirmed: bool = False


class FreeWinMeasured(Event, frozen=True, kw_only=True, tag="free_win_measured"):
    win: FreeWin


class RequestedTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call of a model; `arguments` is the JSON text as the model wrote it."""

    name: str
    arguments: str


class ModelReplied(Event, frozen=True, kw_only=True, tag="model_said"):
    """A message of a conversation with a model, as it was sent. Long texts are cut; the transcript has them in full.

    `conversation` is the number of the conversation in the job, from 1; `turn` is the number of the model's reply,
    from 1 (0: before the first reply). The role of the model is `assistant`; `tool` is the answer to a call; `user` is
    the task, a reminder to continue, or a user's message. `candidate` is the hash of the candidate that an answer
    reports on. `tokens` and `seconds` belong to a reply, and are 0 if the server does not report them; `spent` is the
    cost of the job's replies so far, None for other roles.
    """

    conversation: int
    turn: int
    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[RequestedTool, ...] = ()
    candidate: str = ""
    tokens: int = 0
    seconds: float = 0.0
    spent: Spending | None = None


class Warned(Event, frozen=True, kw_only=True, tag="warned"):
    """A warning for the user: for example, timing is unreliable because of another load, or a worker was restarted."""

    message: str


class JobFinished(Event, frozen=True, kw_only=True, tag="job_finished"):
    result: OptimizeResult


class JobFailed(Event, frozen=True, kw_only=True, tag="job_failed"):
    """The job ended with an error. `exit_code` is one of those in errors.py; a client may exit with it."""

    cause: str
    next_step: str
    exit_code: int
    detail: str = ""


AnyEvent = (
    JobQueued
    | JobStarted
    | Progress
    | TaskOpened
    | BaselineMeasured
    | CandidateEvaluated
    | BestImproved
    | FreeWinMeasured
    | ModelReplied
    | Warned
    | JobFinished
    | JobFailed
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode_event(event: AnyEvent) -> bytes:
    return _encoder.encode(event)


def decode_event(data: bytes | str) -> AnyEvent:
    return _decoder.decode(data)
