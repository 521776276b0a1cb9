"""Copies jobs of a remote machine into the local store, so that `show`, `history` and `apply` can find them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError, StoreError, UsageError, boundary
from kernel_assistant.events import AnyEvent, JobFinished, decode_event, encode_event
from kernel_assistant.records import KernelTask, OptimizeResult, Step, decode, encode
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.records.transcript import Transcript
from kernel_assistant.remote.machine import RemoteMachine
from kernel_assistant.session.hosting.event_log import log_path
from kernel_assistant.source.build import import_location
from kernel_assistant.store import JobRow, Store


@dataclass(frozen=True)
class FetchedJob:
    """A job as the store of `machine` has it. `files` maps the relative name of a result's file to its content.
    `identity` is a text that differs between any two jobs of any machines."""

    row: JobRow
    steps: tuple[Step, ...]
    transcripts: tuple[Transcript, ...]
    events: tuple[AnyEvent, ...]
    files: dict[str, bytes]
    machine: str
    identity: str


def fetch(machine: RemoteMachine, job: str) -> FetchedJob:
    """Returns everything that the remote store has of `job` (a number or `last`). Raises UsageError if there is no such
    job."""
    answer, (*contents, log) = machine.call("fetch", job=job)
    names = [str(name) for name in answer["files"]]
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise UsageError(f"the result over there has a file {name!r}, which leads out of its folder", "look there")
    row = from_builtins(answer["row"], JobRow)
    # The date differs if the remote store was begun anew.
    identity = f"{machine.name}\0{machine.installed.folder}\0{row.id}\0{row.created}"
    return FetchedJob(
        row=row,
        steps=from_builtins(answer["steps"], tuple[Step, ...]),
        transcripts=from_builtins(answer["transcripts"], tuple[Transcript, ...]),
        events=tuple(decode_event(line) for line in log.splitlines()),
        files=dict(zip(names, contents, strict=True)),
        machine=machine.name,
        identity=hashlib.sha256(identity.encode()).hexdigest()[:24],
    )


def keep(fetched: FetchedJob, settings: Settings) -> OptimizeResult:
    """Copies an ended job and its files into the local store, unless an earlier call has done so, and returns its
    result.

    Raises UsageError for a job without a result, StoreError if this machine cannot store it.
    """
    if fetched.row.result is None:
        raise UsageError(f"job {fetched.row.id} has no result", f"kernel-assistant show {fetched.row.id}")
    store = Store(settings.state_dir)
    link = settings.state_dir / "remote" / fetched.identity
    row = _known(store, link)
    if row is None:
        row = _add(store, settings, fetched)
        with boundary(StoreError, f"cannot write {link}"):
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            link.write_text(row.id)
    if row.result is None:
        raise StoreError(f"job {row.id} was not brought back as a whole", f"remove {link}, then try again")
    return row.result


def localized(fetched: FetchedJob, folder: Path, job: str) -> OptimizeResult | None:
    """Writes the job's files to `folder` and returns the job's result with their new paths and with `job` as its
    number; None if there is no result."""
    result = fetched.row.result
    if result is None:
        return None
    with boundary(StoreError, f"cannot write {folder}"):
        for name, content in fetched.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(content)
    artifacts = {name: str(folder / name) for name in result.artifacts if name in fetched.files}
    best = result.best and msgspec.structs.replace(result.best, files=tuple(sorted(artifacts.values())))
    return msgspec.structs.replace(result, artifacts={"job": job, **artifacts}, best=best)


def _add(store: Store, settings: Settings, fetched: FetchedJob) -> JobRow:
    row = fetched.row
    task = as_here(row).task
    new = store.add_job(task, row.options, f"{row.device} of {fetched.machine}")
    files = dict(fetched.files)
    if "task.json" in files:
        files["task.json"] = encode(_moved(decode(files["task.json"], KernelTask), task))
    result = localized(replace(fetched, files=files), settings.jobs_dir / new.id / "result", new.id)
    for step in fetched.steps:
        store.add_step(new.id, step)
    for number, transcript in enumerate(fetched.transcripts):
        store.transcripts.keep(new.id, number, transcript)
    _write_log(log_path(settings.jobs_dir, new.id), fetched.events, new.id, result)
    store.mark_ended(new.id, row.state, result=result, error=row.error, next_step=row.next_step)
    return store.job(new.id)


def _write_log(path: Path, events: tuple[AnyEvent, ...], job: str, result: OptimizeResult | None) -> None:
    """Writes the events to `path`, with `job` as the number of the job. The last event gets `result`, which has the
    paths of this machine."""
    lines = []
    for event in events:
        ended = isinstance(event, JobFinished) and result is not None
        changes = {"job": job, "result": result} if ended else {"job": job}
        lines.append(encode_event(msgspec.structs.replace(event, **changes)) + b"\n")
    with boundary(StoreError, f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(b"".join(lines))


def as_here(row: JobRow) -> JobRow:
    """Returns a row of the remote machine's store, changed so that it has the paths of the module on this machine."""
    path = Path(row.options.source_path.rpartition(":")[0] or row.task.path)
    search_path = (import_location(path)[1],) if path.is_file() and not row.task.installed else ()
    task = msgspec.structs.replace(row.task, path=str(path), search_path=search_path)
    return msgspec.structs.replace(row, task=task)


def _moved(task: KernelTask, like: KernelTask) -> KernelTask:
    return msgspec.structs.replace(task, path=like.path, search_path=like.search_path)


def _known(store: Store, link: Path) -> JobRow | None:
    try:
        return store.job(link.read_text())
    except (OSError, KernelAssistantError):
        return None
