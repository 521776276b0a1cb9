"""A job that looks at one applied class: builds its sources anew, judges both binaries, runs and times the file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.apply.missing import add_binary
from kernel_assistant.apply.package import MANIFEST
from kernel_assistant.environment.ceilings import known_ceilings
from kernel_assistant.environment.compile import Binary, CompileFailure
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.errors import InternalError, StoreError, UsageError, WorkerError, boundary
from kernel_assistant.events import AnyEvent, CandidateEvaluated, Progress
from kernel_assistant.records import Evaluation, JobOutcome, KernelTask, OptimizeResult, StopReason, Timing
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.session.applied_timing import AppliedRow
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.check_report import CheckStatus, ClassCheck, Recorded, write_check
from kernel_assistant.session.jobs import JobServices
from kernel_assistant.session.outcome import best_of
from kernel_assistant.session.plain import PlainProcess, plain_process
from kernel_assistant.store import AppliedCheck, JobOptions
from kernel_assistant.targets.base import DeviceFacts

PICK_SECONDS = 60.0


def check_applied(
    task: KernelTask,
    options: JobOptions,
    device: DeviceFacts,
    *,
    emit: Callable[[AnyEvent], None],
    cancel: threading.Event,
    services: JobServices,
) -> OptimizeResult:
    """Check the class that `options` names against `task`, its file's text without kernels."""
    started = time.monotonic()
    if options.applied is None:
        raise InternalError("a job to check an applied class came without one")
    wanted = options.applied
    applied = applied_at(Path(wanted.folder))
    with (
        services.workers.lend_plain(options.python, device, wanted.folder) as other,
        plain_process(other, _params(task, wanted, applied, device), cancel) as plain,
        services.workers.lend(options.python, device) as worker,
    ):
        if known_ceilings(device, services.settings.cache_dir) is not None:
            plain.begin()  # else the device's bandwidths are measured first, and nothing else may work meanwhile
        with open_environment(
            task,
            device=device,
            worker=worker,
            sandbox_mode=options.sandbox,
            cache_dir=services.settings.cache_dir,
            cancel=cancel,
            emit=emit,
        ) as environment:
            plain.begin()
            found = _Check(applied, task, wanted, environment, plain, emit)
            return _result(found, task, environment, services, started)


def _result(
    found: _Check, task: KernelTask, environment: Environment, services: JobServices, started: float
) -> OptimizeResult:
    """Look at the class and write down what there was."""
    report = msgspec.structs.replace(found.run(), seconds=time.monotonic() - started)
    folder = services.folder / "result"
    artifacts = write_result(
        folder,
        task=task,
        graph=environment.graph,
        device=environment.device,
        facts=environment.facts,
        trajectory=None,
        candidate=None,
        evaluation=found.evaluation,
        binaries={},
    )
    path = write_check(folder, report)
    return OptimizeResult(
        task=task.name,
        target=task.target,
        device=environment.device.name,
        outcome=JobOutcome.no_measurable_gain if report.gate_met else JobOutcome.no_candidate,
        best=best_of(found.evaluation, "check", ()),
        evaluations=1,
        seconds=time.monotonic() - started,
        stop_reason=StopReason.finished.value,
        artifacts={"job": services.job, **artifacts, "check.json": path},
    )


def _params(task: KernelTask, wanted: AppliedCheck, applied: AppliedClass, device: DeviceFacts) -> dict[str, Any]:
    return {
        "task": to_builtins(task),
        "applied": wanted.text,
        "package": str(applied.package),
        "device": device.index,
        "cache_bytes": device.cache_bytes,
    }


def applied_at(folder: Path) -> AppliedClass:
    """The class whose kernels lie in `folder`. Raises UsageError."""
    package = next((place for place in folder.parents if (place / MANIFEST).is_file()), folder.parent)
    for one in find_applied([package]):
        if one.folder == folder:
            return one
    raise UsageError(f"{folder} holds no applied class", "kernel-assistant check FOLDER")


def unchecked(applied: AppliedClass) -> ClassCheck:
    """What is known of a class before anything is run."""
    provenance = applied.provenance
    numbers = provenance.get("numbers", {})
    timing = numbers.get("timing")
    return ClassCheck(
        name=applied.name,
        class_name=applied.class_name,
        package=str(applied.package),
        target=applied.candidate.plan.target,
        status=CheckStatus.ok,
        message="",
        recorded=Recorded(
            device=provenance.get("device", {}).get("name", ""),
            versions=provenance.get("versions", {}),
            date=provenance.get("date", ""),
            speedup=(numbers.get("applied") or {}).get("speedup"),
            timing=None if timing is None else from_builtins(timing, Timing),
        ),
    )


class _Failed(Exception):
    """A gate is not met; what was found so far stands."""

    def __init__(self, status: CheckStatus, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.next_step = status, message, next_step


class _Check:
    """One class. `evaluation` is the judge's of the binary that is loaded here."""

    def __init__(
        self,
        applied: AppliedClass,
        task: KernelTask,
        wanted: AppliedCheck,
        environment: Environment,
        plain: PlainProcess,
        emit: Callable[[AnyEvent], None],
    ) -> None:
        self._applied, self._task, self._wanted = applied, task, wanted
        self._environment, self._plain, self._emit = environment, plain, emit
        self._found: dict[str, Any] = {"device": environment.device.name}
        self.evaluation: Evaluation | None = None

    def run(self) -> ClassCheck:
        try:
            self._look()
            status, message, next_step = CheckStatus.ok, self._praise(), ""
        except _Failed as failed:
            status, message, next_step = failed.status, failed.message, failed.next_step
        return msgspec.structs.replace(
            unchecked(self._applied), status=status, message=message, next_step=next_step, **self._found
        )

    def _look(self) -> None:
        changed = self._applied.changed()
        if changed:
            raise _Failed(
                CheckStatus.wrong, f"{changed[0]} is not as it was written", "undo the kernels and apply them again"
            )
        rebuilt = self._build()
        name = self._pick(rebuilt)
        loaded = Binary(name, self._read(name))
        if self._wanted.kernels:
            self._plain.wait()
        self._judge(loaded, "the binary that is loaded here", profile=self._wanted.kernels)
        if rebuilt.content != loaded.content:
            self._judge(rebuilt, "built anew", profile=False)
        self._inspect()

    def _build(self) -> Binary:
        self._emit(Progress(phase="compile", message=f"building the sources of {self._applied.class_name}"))
        built = self._environment.build(self._applied.candidate)
        if isinstance(built, Binary):
            self._found["rebuilt"] = "built"
            return built
        if isinstance(built, CompileFailure):
            first = built.diagnostics[0]
            self._found["rebuilt"] = "compile error"
            raise _Failed(
                CheckStatus.cannot_build,
                f"{first.file} L{first.line} {first.message}".strip(),
                "optimize it again with this compiler",
            )
        self._found["rebuilt"] = "refused"
        raise _Failed(CheckStatus.stale, f"the plan no longer fits the class: {built[0].message}", "optimize it again")

    def _pick(self, rebuilt: Binary) -> str:
        """Name of the binary that the loader takes here; built and verified now where there is none and that is
        wanted."""
        answer = self._ask_loader()
        if "problem" in answer and self._wanted.build_missing:
            self._judge(rebuilt, "built anew", profile=False)
            added = add_binary(self._applied, rebuilt.name, rebuilt.content, self._environment.facts)
            self._applied = applied_at(self._applied.folder)
            self._found["added"] = added
            answer = self._ask_loader()
        if "problem" in answer:
            raise _Failed(
                CheckStatus.no_binary,
                f"{answer['problem']}; the original runs",
                "kernel-assistant check --build-missing",
            )
        self._found["binary"] = answer["name"]
        return str(answer["name"])

    def _ask_loader(self) -> dict[str, Any]:
        guard = self._applied.guard
        params = {
            "folder": str(self._applied.folder),
            "target": self._task.target,
            "device": self._environment.device.index,
            "cpu_flags": guard.get("cpu_flags", []),
            "binary_flags": guard.get("binary_flags", {}),
        }
        worker = self._environment.worker
        return worker.call("pick_binary", params, timeout=PICK_SECONDS, cancel=self._environment.cancel)

    def _read(self, name: str) -> bytes:
        with boundary(StoreError, f"cannot read {name}"):
            return (self._applied.folder / name).read_bytes()

    def _judge(self, binary: Binary, what: str, *, profile: bool) -> None:
        self._emit(Progress(phase="verify", message=f"{binary.name}, {what}"))
        found = self._environment.judge_binary(self._applied.candidate, binary, profile=profile)
        plan = self._applied.candidate.plan
        self._emit(CandidateEvaluated(turn=0, schedule=plan.schedule, origin=what, evaluation=found))
        if not found.correct:
            raise _Failed(
                CheckStatus.wrong,
                f"{binary.name}, {what}: {found.outcome.value.replace('_', ' ')}: {found.message}",
                "undo the kernels, then optimize again",
            )
        if self.evaluation is None or profile:
            self.evaluation = found
            self._found["timing"] = found.timing

    def _inspect(self) -> None:
        """One call through the loader and the guard, as the user's process makes it; times if they are wanted."""
        timed = ", timing it against the file without" if self._wanted.timing else ""
        self._emit(Progress(phase="apply", message=f"calling the file with its kernels{timed}"))
        try:
            with self._environment.alone() if self._wanted.timing else nullcontext():
                seen = self._plain.check(timing=self._wanted.timing)
        except WorkerError as error:
            raise _Failed(
                CheckStatus.wrong, f"the file with its kernels cannot be run: {error.cause}", "undo the kernels"
            ) from error
        if not seen["equal"]:
            raise _Failed(CheckStatus.wrong, "the file with its kernels gives other values", "undo the kernels")
        if not seen["kernel"]:
            said = [*seen["warnings"], *seen["fallbacks"]]
            reason = said[0] if said else "no reason was given"
            raise _Failed(CheckStatus.stale, f"the original runs for the declared call: {reason}", "optimize it again")
        if seen["row"] is not None:
            self._found["applied"] = from_builtins(seen["row"], AppliedRow)

    def _praise(self) -> str:
        row: AppliedRow | None = self._found.get("applied")
        if row is None:
            return "verified"
        low, high = row.speedup_ci
        return f"verified, {row.speedup:.2f}× ({low:.2f}–{high:.2f}) the original"
