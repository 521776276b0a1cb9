"""Evaluates free-form candidates (a ModelNew file, a CUDA-Agent workdir) in the same stages as plans.

This takes longer than for plans (torch is started for each candidate, an extension takes half a minute to build) and is
less protected: a candidate's Python and C++ run in the process that calls the candidate. The judge checks and times
both kinds of candidates in the same way.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.environment.builds.compile import CompileFailure
from kernel_assistant.environment.ceilings import ceilings_of, with_ceilings
from kernel_assistant.environment.device_locks import alone, lock_folder
from kernel_assistant.environment.evaluations import measured, not_compiled, refused
from kernel_assistant.environment.freeform_build import FreeformBuilder, runner_spec
from kernel_assistant.environment.freeform_candidate import ModelCandidate
from kernel_assistant.environment.freeform_text import REFERENCE
from kernel_assistant.environment.repeated_measurement import ONE_MEASUREMENT, RepeatedMeasurement
from kernel_assistant.environment.screens.screen_cpp import cpp_problems
from kernel_assistant.environment.screens.screen_python import screen_python, screen_reference
from kernel_assistant.environment.session import BASELINE_SECONDS, STAGE_SECONDS
from kernel_assistant.environment.stage_messages import open_task
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import UsageError, WorkerError
from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.records import (
    Diagnostic,
    Evaluation,
    KernelTask,
    OpGraph,
    Stage,
    Tier,
)
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.source.build import build_task
from kernel_assistant.targets.base import DeviceFacts

Emit = Callable[[AnyEvent], None]


class FreeformEnvironment:
    """Evaluates free-form candidates (Python files, not plans) of one task. Not thread-safe, except for the event
    `cancel`."""

    def __init__(
        self,
        task: KernelTask,
        device: DeviceFacts,
        worker: WorkerClient,
        sandbox: Sandbox,
        cache_dir: Path,
        emit: Emit,
        cancel: threading.Event,
        nominal: bool = False,
    ) -> None:
        self._nominal = nominal
        self.task, self.worker, self.sandbox, self.emit, self.cancel = task, worker, sandbox, emit, cancel
        if not worker.hello:
            worker.start(cancel)
        self.device = with_ceilings(device, worker, cache_dir, cancel)
        self.builder = FreeformBuilder(self.device, worker.python, worker.hello, sandbox, cache_dir, cancel)
        self.graph: OpGraph | None = None
        self._workspaces: list[str] = []

    def evaluate(
        self,
        candidate: ModelCandidate,
        tier: Tier,
        *,
        profile: bool = True,
        repetition: RepeatedMeasurement = ONE_MEASUREMENT,
    ) -> Evaluation:
        """Screens, builds and verifies a candidate, and times it if `profile` is set. Returns the evaluation of the
        first stage that fails, else of the last one."""
        key, spent = candidate.hash(), dict[str, float]()
        diagnostics = screen_candidate(candidate)
        if diagnostics:
            return refused(key, tier, diagnostics, diagnostics[0].located)
        began = time.perf_counter()
        self.emit(Progress(phase="compile", message=f"building {candidate.name}"))
        built = self.builder.build(candidate)
        spent["compile"] = time.perf_counter() - began
        if isinstance(built, CompileFailure):
            return not_compiled(key, tier, built, spent)
        return self.measure(candidate, built, tier, profile=profile, spent=spent, repetition=repetition)

    def measure(
        self,
        candidate: ModelCandidate,
        built: Path,
        tier: Tier,
        *,
        profile: bool = True,
        spent: dict[str, float] | None = None,
        repetition: RepeatedMeasurement = ONE_MEASUREMENT,
    ) -> Evaluation:
        """Verifies a candidate whose built extensions are in the folder `built`, and times it if `profile` is set.
        `spent` maps stages to seconds and is changed."""
        plan, binary = self._prepare(candidate, built)
        return self._measure(plan, binary, candidate.hash(), tier, {} if spent is None else spent, profile, repetition)

    def close(self) -> None:
        """Closes the open task in the worker, which stays alive, and deletes the runners' folders."""
        self.worker.release()
        for folder in self._workspaces:
            shutil.rmtree(folder, ignore_errors=True)

    def _prepare(self, candidate: ModelCandidate, built: Path) -> tuple[dict[str, Any], bytes]:
        workspace = tempfile.mkdtemp(prefix="kernel-assistant-run-")
        self._workspaces.append(workspace)
        spec = runner_spec(candidate, built, Path(workspace), self.builder, self.worker.hello["threads"])
        command = self.sandbox.command(spec)
        runner = {"argv": list(command.argv), "env": command.env, "device": self.device.index}
        graph = self.graph or self._open(runner)
        plan = {
            "outputs": [{"name": f"out{index}"} for index in range(len(graph.outputs))],
            "launches": [],
            "runner": runner,
            "waits": candidate.uses_triton,
        }
        extension = (
            next(iter(sorted(built.glob("extension*/cuda_extension*.so"))), None) if candidate.is_workdir else None
        )
        message = {
            "text": candidate.text,
            "class": "ModelNew",
            "folder": str(built),
            "extension": str(extension) if extension else "",
        }
        return plan, json.dumps(message).encode()

    def _open(self, runner: dict[str, Any]) -> OpGraph:
        self.emit(Progress(phase="open", message=f"loading {self.task.name}"))
        params = {
            "task": to_builtins(self.task),
            "runner": runner,
            "freeform": True,
            "ceilings": ceilings_of(self.device),
            "lock": str(lock_folder("cuda", self.device.index)) if self.device.target == "cuda" else None,
            "nominal": self._nominal,
        }
        answer = open_task(self.worker, params, self.cancel, emit=self.emit)
        self.graph = from_builtins(answer["graph"], OpGraph)
        return self.graph

    def _measure(
        self,
        plan: dict[str, Any],
        binary: bytes,
        key: str,
        tier: Tier,
        spent: dict[str, float],
        profile: bool,
        repetition: RepeatedMeasurement,
    ) -> Evaluation:
        params = {"plan": plan, "key": key, "tier": tier.value}
        answer: dict[str, Any] = {}
        for stage in (Stage.verify, Stage.profile) if profile else (Stage.verify,):
            began = time.perf_counter()
            if stage is Stage.profile:
                self._baselines(tier)
            try:
                if stage is Stage.profile:
                    latest = repetition.until_clear(
                        lambda measurement: self._profile({**params, "look": measurement}, binary), self.emit
                    )
                else:
                    latest = self._ask(stage, params, binary)
            except WorkerError as error:
                self._restart()
                return measured(key, tier, stage, {"outcome": "crashed", "message": error.cause}, spent)
            spent[stage.value] = time.perf_counter() - began
            answer = {**answer, **latest}
            if latest["outcome"] != "correct":
                break
        return measured(key, tier, stage, answer, spent)

    def _profile(self, params: dict[str, Any], binary: bytes) -> dict[str, Any]:
        with self._timed():
            return self._ask(Stage.profile, params, binary)

    def _ask(self, stage: Stage, params: dict[str, Any], binary: bytes) -> dict[str, Any]:
        return self.worker.call(stage.value, params, (binary,), timeout=STAGE_SECONDS, cancel=self.cancel)

    def _baselines(self, tier: Tier) -> None:
        """Times the baselines before the candidate, so that the time limit for the candidate does not include compiling
        them."""
        for which in ("eager", "compile") if tier is Tier.full else ("eager",):
            self.worker.call("prepare", {"which": which}, timeout=BASELINE_SECONDS, cancel=self.cancel)
            with self._timed():
                self.worker.call("baseline", {"which": which}, timeout=BASELINE_SECONDS, cancel=self.cancel)

    def _timed(self) -> AbstractContextManager[None]:
        """Holds the CPU's lock exclusively during the `with` block. Does nothing for a GPU, whose lock the judge takes
        itself."""
        return alone(self.device, self.cancel) if self.device.target == "cpu" else nullcontext()

    def _restart(self) -> None:
        """Starts a new worker after the old one was lost. That is rare, because a candidate runs in another process."""
        self.worker.restart(self.cancel)
        self.graph = None


def screen_candidate(candidate: ModelCandidate) -> tuple[Diagnostic, ...]:
    """Returns a diagnostic for everything that is not allowed in a free-form candidate's Python, C++ and CUDA code. Two
    files of a workdir are not screened: binding.cpp and binding_registry.h."""
    name = candidate.path.name if not candidate.is_workdir else "model_new.py"
    diagnostics = list(screen_python(candidate.text, name))
    for source, text in candidate.sources.items():
        if source not in ("binding.cpp", "binding_registry.h"):
            diagnostics += [Diagnostic(message=message, file=source, line=line) for line, message in cpp_problems(text)]
    return tuple(diagnostics)


def task_of(candidate: ModelCandidate, reference: str | None, target: str, numerics: str) -> KernelTask:
    """Returns the task that a candidate must solve, for `reference` (FILE[:CLASS]) or, if None, for the candidate's own
    reference.

    Raises UsageError if the candidate's own reference contains code that no reference needs, because references run
    outside the sandbox.
    """
    if reference is not None:
        return build_task(reference, target=target, numerics=numerics)
    diagnostics = screen_reference(candidate.reference, candidate.reference_path.name)
    if diagnostics:
        raise UsageError(
            f"{diagnostics[0].file}:{diagnostics[0].line}: {diagnostics[0].message}",
            "read the file; if you trust it, name it: --reference FILE[:CLASS]",
        )
    spec = f"{candidate.reference_path}:{REFERENCE}"
    task = build_task(spec, target=target, numerics=numerics, text=candidate.reference)
    # An untrusted file cannot import its neighbours.
    return msgspec.structs.replace(task, search_path=())


@contextmanager
def open_freeform(
    task: KernelTask,
    *,
    device: DeviceFacts,
    worker: WorkerClient,
    sandbox_mode: str,
    cache_dir: Path,
    cancel: threading.Event,
    emit: Emit,
    nominal: bool = False,
) -> Iterator[FreeformEnvironment]:
    """Yields an environment for free-form candidates (Python files) during the `with` block; the worker stays alive
    afterwards. `nominal` replaces measured times by computed ones, for tests (worker/measuring/nominal.py)."""
    environment = FreeformEnvironment(task, device, worker, choose(sandbox_mode), cache_dir, emit, cancel, nominal)
    try:
        yield environment
    finally:
        environment.close()


def target_of(candidate: ModelCandidate, target: str) -> str:
    """Returns the target on which the candidate runs: `cuda` if it needs a GPU, else `target`. Raises UsageError if it
    needs a GPU and `target` is the CPU."""
    if not candidate.needs_gpu:
        return target
    if target not in ("auto", "cuda"):
        raise UsageError(f"the candidate is for cuda, not {target}", "leave --target out or say cuda")
    return "cuda"
