"""Records that the store keeps, besides those in `kernel_assistant.records`: jobs, their options, and applied edits."""

from __future__ import annotations

from enum import Enum

from kernel_assistant.records import Candidate, KernelTask, OptimizeResult, Price
from kernel_assistant.records.codec import Record, content_hash, to_builtins


class JobKind(str, Enum):
    """`verify` and `profile` evaluate one given candidate; `optimize` runs an episode; `check` verifies applied kernels
    again; `lines` times each line of the module's `forward` as PyTorch runs it."""

    optimize = "optimize"
    verify = "verify"
    profile = "profile"
    check = "check"
    lines = "lines"


class JobState(str, Enum):
    queued = "queued"
    running = "running"
    done = "done"
    cancelled = "cancelled"
    failed = "failed"
    interrupted = "interrupted"  # the host died while it ran; it can be continued

    @property
    def active(self) -> bool:
        return self in (JobState.queued, JobState.running)


class FreeformFiles(Record, frozen=True, kw_only=True):
    """A ModelNew file or a CUDA-Agent workdir to check, as `environment/freeform_candidate.py` reads it."""

    path: str
    text: str
    reference: str
    reference_path: str
    sources: dict[str, str] = {}


class AppliedCheck(Record, frozen=True, kw_only=True):
    """A check of a class with applied kernels. `folder` holds the kernels, `text` is the file with the generated lines.

    Without `timing` only values are checked. With `kernels`, the kernels alone are timed against torch.compile as well.
    `build_missing` adds a binary for the architecture of this machine if there is none.
    """

    folder: str
    text: str
    timing: bool = True
    kernels: bool = False
    build_missing: bool = False


class JobOptions(Record, frozen=True, kw_only=True):
    """How to run a task. `budget` is in seconds; an empty `python` means that the interpreter is found from the
    project.

    `endpoint` and `model` say which model writes kernels ("" for the model in use); `episodes` is the number of
    conversations at once; `turns`, `tokens` and `device_time` (seconds, None for no limit) limit each conversation.
    `money` limits all conversations together (None: no limit); `price` is for a model that has no price of its own.
    `source_path` is the file that `apply` edits if it is not the task's own file (for tasks of the Python call).
    """

    kind: JobKind = JobKind.optimize
    policy: str = "auto"
    budget: float = 120.0
    python: str = ""
    sandbox: str = "auto"
    source_path: str = ""
    candidate: Candidate | None = None
    freeform: FreeformFiles | None = None
    free_wins: bool = True
    applied: AppliedCheck | None = None
    endpoint: str = ""
    model: str = ""
    episodes: int = 1
    turns: int = 200
    tokens: int = 1_000_000
    money: float | None = None
    price: Price | None = None
    device_time: float | None = None


class JobRow(Record, frozen=True, kw_only=True):
    """One job. Times are seconds since the epoch; `started` and `ended` are 0 until then. `error` is the cause of a
    failure, and `next_step` says how to continue after it."""

    id: str
    task: KernelTask
    options: JobOptions
    state: JobState
    device: str = ""
    created: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    result: OptimizeResult | None = None
    error: str = ""
    next_step: str = ""

    @property
    def key(self) -> str:
        return job_key(self.task, self.options)

    def summary(self) -> dict[str, object]:
        """Returns the job as plain data for scripts. All jobs have the same fields; the source text is left out."""
        return {
            "job": self.id,
            "kind": self.options.kind.value,
            "state": self.state.value,
            "device": self.device,
            "created": self.created,
            "started": self.started,
            "ended": self.ended,
            "error": self.error,
            "next_step": self.next_step,
            "result": None if self.result is None else to_builtins(self.result),
        }


def job_key(task: KernelTask, options: JobOptions) -> str:
    """Returns a hash of task and options; two submissions with equal hashes would do the same work."""
    return content_hash([task, options])


class EditRow(Record, frozen=True, kw_only=True):
    """An applied edit, kept for `undo`: `document` is JSON with the edit's class, package and diff."""

    id: int
    path: str
    job: str
    document: str
    created: float
    undone: float = 0.0
