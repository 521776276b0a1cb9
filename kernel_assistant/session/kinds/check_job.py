"""A job that checks one class with applied kernels. It compiles the kernels' sources again, lets the judge verify this
binary and the one that the package loads on this machine, then calls and times the file with its kernels."""

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
from kernel_assistant.environment.builds.compile import Binary, CompileFailure
from kernel_assistant.environment.ceilings import known_ceilings
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.errors import InternalError, UsageError, WorkerError
from kernel_assistant.events import AnyEvent, CandidateEvaluated, Progress
from kernel_assistant.records import Evaluation, JobOutcome, KernelTask, OptimizeResult, StopReason, Timing
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.hosting.jobs import JobServices
from kernel_assistant.session.kinds.applied_process import AppliedProcess, plain_process
from kernel_assistant.session.kinds.applied_timing import AppliedRow
from kernel_assistant.session.kinds.outcome import best_of
from kernel_assistant.session.reporting.check_report import AppliedRecord, CheckStatus, ClassCheck, write_check
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
    """Checks the kernels in the folder that `options.applied` names; `task` has the text of the class's file without
    the kernels. Returns the job's result; the report (ClassCheck) is its artifact `check.json`."""
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
            plain.begin()  # otherwise the device's bandwidths are measured first, with the machine idle
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
            check = _Check(applied, task, wanted, environment, plain, emit)
            return _result(check, task, environment, services, started)


def _result(
    check: _Check, task: KernelTask, environment: Environment, services: JobServices, started: float
) -> OptimizeResult:
    """Runs the check, writes its artifacts and returns the result of the job."""
    report = msgspec.structs.replace(check.run(), seconds=time.monotonic() - started)
    folder = services.folder / "result"
    artifacts = write_result(
        folder,
        task=task,
        graph=environment.graph,
        device=environment.device,
        facts=environment.facts,
        evaluation=check.evaluation,
    )
    path = write_check(folder, report)
    return OptimizeResult(
        task=task.name,
        target=task.target,
        device=environment.device.name,
        outcome=JobOutcome.no_measurable_gain if report.gate_met else JobOutcome.no_candidate,
        best=best_of(check.evaluation, "check", ()),
        evaluations=1,
        seconds=time.monotonic() - started,
        stop_reason=StopReason.finished.value,
        artifacts={"job": services.job, **artifacts, "check.json": path},
    )


def _params(task: KernelTask, wanted: AppliedCheck, applied: AppliedClass, device: DeviceFacts) -> dict[str, Any]:
    return {
        "task": to_builtins(task),
        "applied": wanted.text,
        "edited": task.path,
        "package": str(applied.package),
        "device": device.index,
        "cache_bytes": device.cache_bytes,
    }


def applied_at(folder: Path) -> AppliedClass:
    """Returns the applied class with the path `folder` (`AppliedClass.folder`). Raises UsageError if there is none."""
    package = next(
        (folder_above for folder_above in folder.parents if (folder_above / MANIFEST).is_file()), folder.parent
    )
    for one in find_applied([package]):
        if one.folder == folder:
            return one
    raise UsageError(f"{folder} holds no applied class", "kernel-assistant check FOLDER")


def unchecked(applied: AppliedClass) -> ClassCheck:
    """Returns the report on a class before anything has been run; it has only the facts from the time of applying."""
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
        recorded=AppliedRecord(
            device=provenance.get("device", {}).get("name", ""),
            versions=provenance.get("versions", {}),
            date=provenance.get("date", ""),
            speedup=(numbers.get("applied") or {}).get("speedup"),
            timing=None if timing is None else from_builtins(timing, Timing),
        ),
    )


class _Failed(Exception):
    """A check failed. Later checks are skipped; the report keeps the results of the earlier checks."""

    def __init__(self, status: CheckStatus, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.next_step = status, message, next_step


class _Check:
    """The check of one class. `evaluation` is the judge's evaluation of the binary that is loaded on this machine."""

    def __init__(
        self,
        applied: AppliedClass,
        task: KernelTask,
        wanted: AppliedCheck,
        environment: Environment,
        plain: AppliedProcess,
        emit: Callable[[AnyEvent], None],
    ) -> None:
        self._applied, self._task, self._wanted = applied, task, wanted
        self._environment, self._plain, self._emit = environment, plain, emit
        self._fields: dict[str, Any] = {"device": environment.device.name}
        self.evaluation: Evaluation | None = None

    def run(self) -> ClassCheck:
        try:
            self._check()
            status, message, next_step = CheckStatus.ok, self._praise(), ""
        except _Failed as failed:
            status, message, next_step = failed.status, failed.message, failed.next_step
        return msgspec.structs.replace(
            unchecked(self._applied), status=status, message=message, next_step=next_step, **self._fields
        )

    def _check(self) -> None:
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
            self._fields["rebuilt"] = "built"
            return built
        if isinstance(built, CompileFailure):
            self._fields["rebuilt"] = "compile error"
            raise _Failed(
                CheckStatus.cannot_build,
                built.diagnostics[0].located,
                "optimize it again with this compiler",
            )
        self._fields["rebuilt"] = "refused"
        raise _Failed(CheckStatus.stale, f"the plan no longer fits the class: {built[0].message}", "optimize it again")

    def _pick(self, rebuilt: Binary) -> str:
        """Returns the name of the binary that the package loads on this machine. If there is none and the option
        `build_missing` is set, verifies `rebuilt` and adds it to the package. Raises _Failed if there is still none."""
        answer = self._ask_loader()
        if "problem" in answer and self._wanted.build_missing:
            self._judge(rebuilt, "built anew", profile=False)
            added = add_binary(self._applied, rebuilt.name, rebuilt.content, self._environment.facts)
            self._applied = applied_at(self._applied.folder)
            self._fields["added"] = added
            answer = self._ask_loader()
        if "problem" in answer:
            raise _Failed(
                CheckStatus.no_binary,
                f"{answer['problem']}; the original runs",
                "kernel-assistant check --build-missing",
            )
        self._fields["binary"] = answer["name"]
        return str(answer["name"])

    def _ask_loader(self) -> dict[str, Any]:
        guard = self._applied.guard
        params = {
            "package": str(self._applied.package),
            "class": self._applied.class_name,
            "size": f"{self._applied.size}/" if self._applied.size else "",
            "target": self._task.target,
            "device": self._environment.device.index,
            "cpu_flags": guard.get("cpu_flags", []),
            "binary_flags": guard.get("binary_flags", {}),
        }
        worker = self._environment.worker
        return worker.call("pick_binary", params, timeout=PICK_SECONDS, cancel=self._environment.cancel)

    def _read(self, name: str) -> bytes:
        try:
            return self._applied.read(name)
        except (OSError, ValueError) as error:
            raise _Failed(
                CheckStatus.no_binary, f"{error}; the original runs", "restore the file, or apply the kernels again"
            ) from error

    def _judge(self, binary: Binary, what: str, *, profile: bool) -> None:
        self._emit(Progress(phase="verify", message=f"{binary.name}, {what}"))
        evaluation = self._environment.judge_binary(self._applied.candidate, binary, profile=profile)
        plan = self._applied.candidate.plan
        self._emit(CandidateEvaluated(turn=0, schedule=plan.schedule, origin=what, evaluation=evaluation))
        if not evaluation.correct:
            raise _Failed(
                CheckStatus.wrong,
                f"{binary.name}, {what}: {evaluation.outcome.value.replace('_', ' ')}: {evaluation.message}",
                "undo the kernels, then optimize again",
            )
        if self.evaluation is None or profile:
            self.evaluation = evaluation
            self._fields["timing"] = evaluation.timing

    def _inspect(self) -> None:
        """Calls the class once through loader and guard, as the user's process does, and times it if the options say
        so. Raises _Failed if the result differs or the guard runs the original."""
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
            messages = [*seen["warnings"], *seen["fallbacks"]]
            reason = messages[0] if messages else "no reason was given"
            raise _Failed(CheckStatus.stale, f"the original runs for the declared call: {reason}", "optimize it again")
        if seen["row"] is not None:
            self._fields["applied"] = from_builtins(seen["row"], AppliedRow)

    def _praise(self) -> str:
        row: AppliedRow | None = self._fields.get("applied")
        if row is None:
            return "verified"
        low, high = row.speedup_ci
        return f"verified, {row.speedup:.2f}× ({low:.2f}–{high:.2f}) the original"
