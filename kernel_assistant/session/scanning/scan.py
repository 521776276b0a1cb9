"""Implements `scan`: runs a program under the recorder, ranks its module classes, and keeps the inputs and modules that
`optimize` needs."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.environment.ceilings import known_ceilings, with_ceilings
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import KernelAssistantError, StoreError, boundary
from kernel_assistant.records.scan import Recording, Scan, ScannedClass
from kernel_assistant.session.scanning.program import ProgramRun, explain_nothing, modules_seconds, run_program
from kernel_assistant.session.scanning.ranking import RooflineBandwidth, rank
from kernel_assistant.store import Store
from kernel_assistant.store.scans import ScanStore
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect

#: The number of classes whose modules and inputs are kept after the program has ended, by default.
KEPT = 20
#: The number of scans whose files are kept; of older ones only the figures remain.
KEPT_SCANS = 10


@dataclass(frozen=True)
class ScanRequest:
    """The options of a scan: `repeat` is the number of runs, `keep` the number of classes whose modules and inputs are
    kept; `children` records child processes too; with `quiet` the program's output goes to stderr."""

    command: tuple[str, ...]
    repeat: int = 1
    keep: int = KEPT
    children: bool = False
    quiet: bool = False


def scan_program(request: ScanRequest, settings: Settings) -> Scan:
    """Runs the command under the recorder, stores the scan in the state folder and returns it. Raises UsageError if no
    module was called."""
    store = ScanStore(settings.state_dir)
    here = str(Path.cwd())
    number, folder = store.begin(request.command, here)
    try:
        runs = [
            run_program(
                request.command,
                folder / f"run-{index}",
                children=request.children,
                quiet=request.quiet,
                counters=settings.counters_dir,
            )
            for index in range(1, request.repeat + 1)
        ]
        _note_program(store, runs)
        ran = _middle(runs)
    except BaseException:
        store.forget(number)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    process_folder, recording = ran.recordings[0]
    target = "cuda" if recording.clock == "cuda events" else "cpu"
    notes = [*_notes(ran, recording)]
    ceiling = _ceiling(target, recording.python, settings, notes)
    classes = _keep(process_folder, [_with_line(row) for row in rank(recording, ceiling)], request.keep)
    scan = Scan(
        id=number,
        command=request.command,
        folder=here,
        created=time.time(),
        exit_code=ran.exit_code,
        target=target,
        device=recording.device,
        clock=recording.clock,
        python=recording.python,
        torch=recording.torch,
        main=recording.main,
        ended=recording.ended,
        wall_seconds=recording.net_seconds,
        overhead_seconds=recording.overhead_seconds,
        modules_seconds=modules_seconds(recording),
        startup_seconds=recording.startup_seconds,
        calls_seconds=recording.calls_seconds,
        loop_seconds=recording.loop_seconds,
        loop=recording.loop,
        rounds=recording.rounds,
        runs=tuple(one.recordings[0][1].net_seconds for one in runs if one.recordings),
        counted_runs=tuple(one.recordings[0][1].counted_seconds for one in runs if one.recordings),
        bandwidth=ceiling.bandwidth,
        notes=tuple(notes),
        applied=applied_now(settings),
        search_path=recording.search_path,
        classes=tuple(classes),
    )
    with boundary(StoreError, f"cannot write {folder}"):
        _drop_others(folder, process_folder)
        _drop_old(folder)
    store.finish(scan)
    return scan


def applied_now(settings: Settings) -> tuple[str, ...]:
    """Returns `FILE:CLASS` for all kernels that are applied now, sorted."""
    edits = Store(settings.state_dir).edits()
    return tuple(sorted({f"{edit.path}:{json.loads(edit.document)['class']}" for edit in edits}))


def _note_program(store: ScanStore, runs: list[ProgramRun]) -> None:
    """Stores which classes the program ran eagerly, compiled or scripted. That is known even if all ran compiled, where
    no call is recorded."""
    recordings = [recording for run in runs for _, recording in run.recordings]
    eager = {f"{cls.path}:{cls.qualname}" for recording in recordings for cls in recording.classes if cls.path}
    compiled = {name for recording in recordings for name in recording.compiled}
    store.note_program(eager, compiled, {name for recording in recordings for name in recording.scripted})


def _middle(runs: list[ProgramRun]) -> ProgramRun:
    """Returns the run with the median time among the runs that called modules. Raises UsageError if none did."""
    usable = [run for run in runs if run.recordings and run.recordings[0][1].calls]
    if not usable:
        raise explain_nothing(runs[-1])
    return sorted(usable, key=lambda run: run.recordings[0][1].counted_seconds)[(len(usable) - 1) // 2]


def _notes(ran: ProgramRun, recording: Recording) -> list[str]:
    notes = [f"{count} calls under {reason} were not recorded" for reason, count in sorted(recording.skipped.items())]
    others = [other for _, other in ran.recordings[1:] if other.calls]
    if others:
        calls = sum(other.calls for other in others)
        notes.append(f"{len(others)} more processes called modules ({calls} calls); this is the one with most time")
    if recording.failure:
        notes.append(f"the recorder failed and stopped early: {recording.failure}")
    if recording.ended == "running":
        notes.append("the program was ended from outside; its last two seconds may be missing")
    return notes


def _ceiling(target: str, python: str, settings: Settings, notes: list[str]) -> RooflineBandwidth:
    """Returns the device's memory bandwidth, and measures it if it is not known. If that fails, adds a message to
    `notes` and returns an unknown bandwidth; rooflines then follow from matrix products alone."""
    try:
        device = detect(target)
        measured = known_ceilings(device, settings.cache_dir) or _measure(device, python, settings)
    except KernelAssistantError as error:
        notes.append(f"the memory bandwidth could not be measured: {error.cause}")
        return RooflineBandwidth()
    bandwidth = max(measured.copy_bandwidth, measured.read_bandwidth)
    if not bandwidth:
        notes.append("the machine was too busy to measure its memory bandwidth; floors are those of products alone")
    return RooflineBandwidth(bandwidth, measured.cache_bytes)


def _measure(device: DeviceFacts, python: str, settings: Settings) -> DeviceFacts:
    worker = WorkerClient(python, env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    try:
        worker.start()
        return with_ceilings(device, worker, settings.cache_dir, threading.Event())
    finally:
        worker.close()


def _keep(process_folder: Path, rows: list[ScannedClass], count: int) -> list[ScannedClass]:
    """Returns the rows with absolute paths of their folders. Deletes all folders except those of the first `count`
    rows."""
    problem = f"below the first {count}, its inputs were not kept (--keep)"
    first = [_with_folders(row, process_folder) for row in rows[:count]]
    rest = [_without_files(row, row.problem or problem) for row in rows[count:]]
    used = {row.folder for row in first} | {one.folder for row in first for one in row.more}
    for folder in process_folder.iterdir():
        if folder.is_dir() and str(folder) not in used:
            shutil.rmtree(folder, ignore_errors=True)
    return first + rest


def _with_folders(row: ScannedClass, process_folder: Path) -> ScannedClass:
    if not row.folder:
        return row
    more = tuple(msgspec.structs.replace(one, folder=str(process_folder / one.folder)) for one in row.more)
    return msgspec.structs.replace(row, folder=str(process_folder / row.folder), more=more)


def _without_files(row: ScannedClass, problem: str) -> ScannedClass:
    return msgspec.structs.replace(row, folder="", samples=(), more=(), problem=problem)


def _drop_others(folder: Path, process_folder: Path) -> None:
    """Deletes all recordings of a scan except the recording that was ranked."""
    for run in folder.iterdir():
        if run != process_folder.parent:
            shutil.rmtree(run)
    for process in process_folder.parent.iterdir():
        if process != process_folder:
            shutil.rmtree(process)


def _drop_old(newest: Path) -> None:
    """Deletes the files of all but the newest KEPT_SCANS scans, because the files of one scan may have 1 GiB."""
    numbers = sorted(int(item.name) for item in newest.parent.iterdir() if item.name.isdigit())
    for number in numbers[:-KEPT_SCANS]:
        for item in (newest.parent / str(number)).iterdir():
            shutil.rmtree(item)


def _with_line(row: ScannedClass) -> ScannedClass:
    """Returns `row` with the number of the line of its class statement; 0 if it is not found."""
    try:
        text = Path(row.path).read_text(encoding="utf-8", errors="replace") if row.path else ""
    except OSError:
        return row
    match = re.search(rf"^[ \t]*class {re.escape(row.name)}\b", text, re.MULTILINE)
    return msgspec.structs.replace(row, line=text.count("\n", 0, match.start()) + 1) if match else row
