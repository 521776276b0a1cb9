"""Jobs that a long-running front end sends to the machine of the setting `host`. Their results are fetched to this
machine.

A file in the state folder records each remote job, so that a front end that is restarted follows the job again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError, StoreError, boundary
from kernel_assistant.records import KernelTask, OptimizeResult
from kernel_assistant.records.codec import Record, decode, encode
from kernel_assistant.remote.closure import find_closure
from kernel_assistant.remote.machine import RemoteMachine
from kernel_assistant.remote.results import fetch, keep
from kernel_assistant.remote.told import told
from kernel_assistant.store import JobOptions

_FOLDER = "away"
_connecting = threading.Lock()


class RemoteJob(Record, frozen=True, kw_only=True):
    """Job `number` on the machine `host`, for a class of a file on this machine. `budget` is in seconds."""

    host: str
    number: str
    path: str
    class_name: str
    kind: str
    budget: float

    @property
    def job(self) -> str:
        return f"{self.host}:{self.number}"


@dataclass(frozen=True)
class RemoteSubmission:
    """A job that was submitted to a remote machine: `machine` is the connected machine, `job` the job, and `answer` the
    reply of the remote session host: `{"job", "joined", "resumed", "ahead"}`."""

    machine: RemoteMachine
    job: RemoteJob
    answer: dict[str, Any]


def send(task: KernelTask, options: JobOptions, settings: Settings) -> RemoteSubmission:
    """Sends a task and the files that it needs to a remote machine, and submits it there.

    Raises the errors of the remote machine, and MissingError if ssh fails.
    """
    machine: RemoteMachine | None = None
    try:
        closure = find_closure(task, settings.ship)
        machine = connected(settings)
        prepared = machine.prepare(task, options, closure)
        answer = machine.client.submit(prepared.task, prepared.options)
    except KernelAssistantError as error:
        raise told(error, settings, lost=machine is not None and machine.client.lost()) from error
    remote_job = RemoteJob(
        host=settings.host,
        number=str(answer["job"]),
        path=task.path,
        class_name=task.class_name,
        kind=options.kind.value,
        budget=options.budget,
    )
    _note(settings, remote_job)
    return RemoteSubmission(machine, remote_job, answer)


def connected(settings: Settings) -> RemoteMachine:
    """Connects to the machine of the setting `host`. Only one thread connects at a time, because the first connection
    installs this tool there."""
    with _connecting:
        return RemoteMachine(settings)


def bring_back(machine: RemoteMachine, remote_job: RemoteJob, settings: Settings) -> OptimizeResult:
    """Fetches the result of a job that has ended and stores it on this machine. `artifacts["job"]` of the returned
    result is the local number of the job.
    """
    result = keep(fetch(machine, remote_job.number), settings)
    _note_path(settings, remote_job).unlink(missing_ok=True)
    return result


def noted(settings: Settings) -> list[RemoteJob]:
    """Returns the jobs that front ends have sent to remote machines and whose results were not fetched yet. Files of
    jobs that cannot be read are deleted."""
    jobs = []
    for path in sorted((settings.state_dir / _FOLDER).glob("*.json")):
        try:
            jobs.append(decode(path.read_bytes(), RemoteJob))
        except (OSError, KernelAssistantError):
            path.unlink(missing_ok=True)  # unreadable: it was half written when a machine stopped
    return jobs


def _note_path(settings: Settings, remote_job: RemoteJob) -> Path:
    name = "".join(letter if letter.isalnum() else "-" for letter in remote_job.job)
    return settings.state_dir / _FOLDER / f"{name}.json"


def _note(settings: Settings, remote_job: RemoteJob) -> None:
    path = _note_path(settings, remote_job)
    with boundary(StoreError, f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(encode(remote_job))
