"""`scan`: run a program under the recorder, rank its module classes, keep what `optimize` needs of them."""

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
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.errors import KernelAssistantError, StoreError, boundary
from kernel_assistant.records.scan import Recording, Scan, ScannedClass
from kernel_assistant.session.program import Ran, explain_nothing, modules_seconds, run_program
from kernel_assistant.session.ranking import Ceiling, rank
from kernel_assistant.store import Store
from kernel_assistant.store.scans import ScanStore
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect

#: Classes whose modules and inputs are kept when the program has ended, unless told otherwise.
KEPT = 20
#: Scans whose files are kept; of older ones only the figures stay.
KEPT_SCANS = 10


@dataclass(frozen=True)
class Wish:
    """What the user asked for: `repeat` runs, files of the first `keep` classes, `children` recorded too, the program's
    output sent to stderr."""

    command: tuple[str, ...]
    repeat: int = 1
    keep: int = KEPT
    children: bool = False
    quiet: bool = False


def scan_program(wish: Wish, settings: Settings) -> Scan:
    """Run the command and store what was found. Raises UsageError where no module was called."""
    store = ScanStore(settings.state_dir)
    here = str(Path.cwd())
    number, folder = store.begin(wish.command, here)
    try:
        runs = [
            run_program(
                wish.command,
                folder / f"run-{index}",
                children=wish.children,
                quiet=wish.quiet,
                counters=settings.counters_dir,
            )
            for index in range(1, wish.repeat + 1)
        ]
        ran = _middle(runs)
    except BaseException:
        store.forget(number)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    place, recording = ran.recordings[0]
    target = "cuda" if recording.clock == "cuda events" else "cpu"
    notes = [*_notes(ran, recording)]
    ceiling = _ceiling(target, recording.python, settings, notes)
    classes = _keep(place, [_with_line(row) for row in rank(recording, ceiling)], wish.keep)
    scan = Scan(
        id=number,
        command=wish.command,
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
        calls_seconds=max(recording.calls_seconds - recording.overhead_seconds, 0.0),
        runs=tuple(one.recordings[0][1].net_seconds for one in runs if one.recordings),
        bandwidth=ceiling.bandwidth,
        notes=tuple(notes),
        applied=applied_now(settings),
        search_path=recording.search_path,
        classes=tuple(classes),
    )
    with boundary(StoreError, f"cannot write {folder}"):
        _drop_others(folder, place)
        _drop_old(folder)
    store.finish(scan)
    return scan


def applied_now(settings: Settings) -> tuple[str, ...]:
    """`FILE:CLASS` of everything that is applied, in order."""
    edits = Store(settings.state_dir).edits()
    return tuple(sorted({f"{edit.path}:{json.loads(edit.document)['class']}" for edit in edits}))


def _middle(runs: list[Ran]) -> Ran:
    """The run of median wall time among those with calls. Raises UsageError where there are none."""
    usable = [run for run in runs if run.recordings and run.recordings[0][1].calls]
    if not usable:
        raise explain_nothing(runs[-1])
    return sorted(usable, key=lambda run: run.recordings[0][1].net_seconds)[(len(usable) - 1) // 2]


def _notes(ran: Ran, recording: Recording) -> list[str]:
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


def _ceiling(target: str, python: str, settings: Settings, notes: list[str]) -> Ceiling:
    """The measured bandwidth, measured now where it never was. Without one, floors come from products alone."""
    try:
        device = detect(target)
        found = known_ceilings(device, settings.cache_dir) or _measure(device, python, settings)
    except KernelAssistantError as error:
        notes.append(f"the memory bandwidth could not be measured: {error.cause}")
        return Ceiling()
    bandwidth = max(found.copy_bandwidth, found.read_bandwidth)
    if not bandwidth:
        notes.append("the machine was too busy to measure its memory bandwidth; floors are those of products alone")
    return Ceiling(bandwidth, found.cache_bytes)


def _measure(device: DeviceFacts, python: str, settings: Settings) -> DeviceFacts:
    worker = Worker(python, env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    try:
        worker.start()
        return with_ceilings(device, worker, settings.cache_dir, threading.Event())
    finally:
        worker.close()


def _keep(place: Path, rows: list[ScannedClass], count: int) -> list[ScannedClass]:
    """The rows with whole paths of their folders; those below the first `count` lose theirs."""
    problem = f"below the first {count}, its inputs were not kept (--keep)"
    first = [_with_folders(row, place) for row in rows[:count]]
    rest = [_without_files(row, row.problem or problem) for row in rows[count:]]
    used = {row.folder for row in first} | {one.folder for row in first for one in row.more}
    for folder in place.iterdir():
        if folder.is_dir() and str(folder) not in used:
            shutil.rmtree(folder, ignore_errors=True)
    return first + rest


def _with_folders(row: ScannedClass, place: Path) -> ScannedClass:
    if not row.folder:
        return row
    more = tuple(msgspec.structs.replace(one, folder=str(place / one.folder)) for one in row.more)
    return msgspec.structs.replace(row, folder=str(place / row.folder), more=more)


def _without_files(row: ScannedClass, problem: str) -> ScannedClass:
    return msgspec.structs.replace(row, folder="", samples=(), more=(), problem=problem)


def _drop_others(folder: Path, place: Path) -> None:
    """Only the run and the process that the ranking is of stay."""
    for run in folder.iterdir():
        if run != place.parent:
            shutil.rmtree(run)
    for process in place.parent.iterdir():
        if process != place:
            shutil.rmtree(process)


def _drop_old(newest: Path) -> None:
    """At up to 1 GiB each, files of every scan would fill a disk."""
    numbers = sorted(int(item.name) for item in newest.parent.iterdir() if item.name.isdigit())
    for number in numbers[:-KEPT_SCANS]:
        for item in (newest.parent / str(number)).iterdir():
            shutil.rmtree(item)


def _with_line(row: ScannedClass) -> ScannedClass:
    """`row` with the line of its class statement, 0 where it cannot be found."""
    try:
        text = Path(row.path).read_text(encoding="utf-8", errors="replace") if row.path else ""
    except OSError:
        return row
    found = re.search(rf"^[ \t]*class {re.escape(row.name)}\b", text, re.MULTILINE)
    return msgspec.structs.replace(row, line=text.count("\n", 0, found.start()) + 1) if found else row
