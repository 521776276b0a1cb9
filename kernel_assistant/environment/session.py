"""The environment of one task on one device. It runs the four stages on a candidate: screen (check the text), compile,
verify (compare with the reference), and profile (measure times).

It evaluates candidates that are plans; `freeform.py` evaluates the others.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.environment.builds.compile import Binary, CompileFailure, Compiler
from kernel_assistant.environment.builds.ship import ship
from kernel_assistant.environment.ceilings import ceilings_of, must_be_measured, with_ceilings
from kernel_assistant.environment.compile_ahead import CompileAhead
from kernel_assistant.environment.counters import count
from kernel_assistant.environment.device_locks import PATIENCE_SECONDS, lock_of
from kernel_assistant.environment.evaluations import measured, not_compiled, refused
from kernel_assistant.environment.job_clock import JobClock, Stopping
from kernel_assistant.environment.measuring import MEASURING
from kernel_assistant.environment.repeated_measurement import MOST_LOOKS, ONE_MEASUREMENT, RepeatedMeasurement
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.environment.screens.screen_residual import screen_residual
from kernel_assistant.environment.stage_messages import StageMessages, of_side_effects, open_task, opening_seconds
from kernel_assistant.environment.worker_client import DeviceLost, WorkerClient
from kernel_assistant.errors import Cancelled, DeviceError, MissingError, UsageError, WorkerError
from kernel_assistant.events import AnyEvent, BaselineMeasured, Progress, TaskOpened, Warned
from kernel_assistant.records import (
    Baseline,
    Candidate,
    Diagnostic,
    Evaluation,
    KernelTask,
    LaunchTime,
    OpGraph,
    Stage,
    Tier,
)
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.records.counters import KernelCounters
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.sandbox.contract import Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.paths import interpreter_paths
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.device_lock import DeviceLock

RUNNER = Path(__file__).resolve().parent.parent / "worker" / "runner"
BASELINE_SECONDS = 600.0
STAGE_SECONDS = 600.0
POLL_SECONDS = 0.05
MOST_RESTARTS = 4
#: A module whose parameters, inputs and outputs take more of the device's memory is not compiled ahead.
MOST_AHEAD = 0.1
BROKE_DEVICE = (
    "mend forward or the declared inputs; with CUDA_LAUNCH_BLOCKING=1 PyTorch names the line that refuses them"
)
#: Stages that the worker runs, in order.
UNTIMED = (Stage.verify,)
TIMED = (Stage.verify, Stage.profile)

Emit = Callable[[AnyEvent], None]
#: The result of a build: the objections of the screen, the compiler's failure, or the binary.
Build = tuple[Diagnostic, ...] | CompileFailure | Binary


class Environment:
    """Evaluates candidates of one task that are plans. Not thread-safe, except for the event `cancel`.

    `compiler` may serve several environments of one device. `lock` defaults to the device's lock. `clock` is the job's
    clock: OutOfTime is raised after its limit. `most` is the most thorough tier that will be used: for `quick`, less
    memory and time are reserved. `throughput` is for many tasks in a row: the runner of a GPU is kept for the next
    task, and single launches are not timed. `nominal` replaces measured times by computed ones, the same on any
    machine, for tests (worker/measuring/nominal.py).
    """

    def __init__(
        self,
        task: KernelTask,
        device: DeviceFacts,
        worker: WorkerClient,
        sandbox: Sandbox,
        cache_dir: Path,
        emit: Emit,
        cancel: threading.Event,
        *,
        compiler: Compiler | None = None,
        lock: DeviceLock | None = None,
        most: Tier = Tier.full,
        throughput: bool = False,
        clock: JobClock | None = None,
        nominal: bool = False,
    ) -> None:
        self.clock = clock or JobClock()
        self.task, self.worker, self.sandbox, self.emit, self.cancel = task, worker, sandbox, emit, cancel
        self._lock, self._most, self._throughput = lock or lock_of(device), most, throughput
        self._nominal, self._judge_waited = nominal, 0.0
        self._stopping = Stopping(cancel, self._until_limit)
        if not worker.hello:
            worker.start(cancel, idle=StageMessages(lambda: "start", Path(worker.python).name, emit))
        if must_be_measured(device, cache_dir):
            emit(Progress(phase="open", message="measuring how fast this device is, once for each machine"))
        self.device = with_ceilings(device, worker, cache_dir, cancel)
        self._cache_dir = cache_dir
        builders = self._lock if device.target == "cpu" else None
        self._compiler = compiler or Compiler(self.device, sandbox, cache_dir, self._stopping, builders)
        self._builders = ThreadPoolExecutor(os.cpu_count() or 1, "compile")
        self._baseline = Baseline(eager_ms=0.0, compile_ms=None, floor_ms=0.0)
        self._uncompiled = False
        self._restarts = 0
        #: Inputs with which the module itself breaks the device: no worker tries them again.
        self._avoid: list[str] = []
        self.facts: dict[str, Any] = {}
        #: Each makes a context for every exclusive measurement, in which other activity of the job pauses.
        self.pausing: list[Callable[[], AbstractContextManager[None]]] = []
        self._ahead: CompileAhead | None = None
        self.graph = self._open()

    def baseline(self, *, compiled: bool) -> Baseline:
        """Returns the times of the reference in eager mode and, with `compiled`, also under torch.compile, in
        milliseconds.

        The first call with `compiled` takes seconds, for the compilation, unless `compile_ahead` has done that. If
        torch.compile cannot compile the module, that time is None and a warning is emitted once.
        """
        if not self._baseline.eager_ms:
            eager = self._time("eager")
            self._baseline = Baseline(eager_ms=eager["ms"], compile_ms=None, floor_ms=eager["floor_ms"])
        if compiled and self._baseline.compile_ms is None and not self._uncompiled:
            self.emit(Progress(phase="baseline", message="measuring torch.compile"))
            self.wait_for_compile(math.inf)
            answer = self._time("compile")
            self._baseline = msgspec.structs.replace(self._baseline, compile_ms=answer.get("ms"))
            if failure := answer.get("failure", ""):
                self._uncompiled = True
                message = f"torch.compile cannot compile it ({failure}): it is compared with eager alone"
                self.emit(Warned(message=message))
        self._announce()
        return self._baseline

    def compile_ahead(self) -> None:
        """Starts to run torch.compile on the module in a second process while the search runs, if memory allows for
        another copy of the module."""
        facts = self.facts
        held = facts["parameter_bytes"] + facts["input_bytes"] + facts["output_bytes"]
        if self._ahead is None and not self._nominal and held <= self.device.memory_bytes * MOST_AHEAD:
            self._ahead = CompileAhead(self.worker, self.task, self.device.index)
            self.pausing.append(self._ahead.quiet)

    def wait_for_compile(self, seconds: float) -> bool:
        """Waits at most `seconds` for the compilation that `compile_ahead` started. Returns whether it has ended (True
        if there is none). Raises Cancelled, and OutOfTime at the job's limit."""
        until = time.monotonic() + seconds
        while self._ahead is not None and not self._ahead.wait(min(until, time.monotonic() + POLL_SECONDS)):
            self._stop_if_cancelled()
            if time.monotonic() >= until:
                return False
        return True

    def evaluate(self, candidates: Sequence[Candidate], tier: Tier) -> list[Evaluation]:
        """Runs the stages on each candidate and returns one evaluation for each, in order. `tier` says how thorough it
        is."""
        return list(self.iterate(candidates, tier))

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterator[Evaluation]:
        """Yields one evaluation for each candidate, in order. Builds run in parallel, measurements one at a time; on a
        CPU, measurements begin only after all builds."""
        builds = [self._builders.submit(self._build, candidate) for candidate in candidates]
        try:
            if self.device.target == "cpu":
                for build in builds:
                    self._built_in_time(build)
            for candidate, build in zip(candidates, builds, strict=True):
                yield self._judge(candidate, build, tier)
        finally:
            for build in builds:
                build.cancel()

    def confirm(self, candidate: Candidate, *, looks: int = MOST_LOOKS, until: float = math.inf) -> Evaluation:
        """Evaluates a candidate in the full tier, on fresh inputs and samples; users are shown only times of this tier.

        If the compilation that `compile_ahead` started is not finished, the candidate is compared with eager mode
        alone.

        An unclear measurement is repeated, up to `looks` measurements in all (1 or `MOST_LOOKS`), as long as the next
        one would end before `until` (of `time.monotonic`). The confidence interval accounts for all `looks`.
        """
        build = self._builders.submit(self._build, candidate)
        return self._judge(candidate, build, Tier.full, RepeatedMeasurement(looks, until))

    def binaries(self, candidate: Candidate, *, others: bool = True) -> dict[str, bytes]:
        """Returns file name → content of the candidate's binaries: for this device and, with `others`, for the other
        architectures that results contain. Those that are not compiled before the job's limit are left out."""
        built = self._built(candidate)
        if self.device.target == "cpu" or not others:
            return {built.name: built.content}
        self.emit(Progress(phase="apply", message="compiling for the other architectures"))
        shipment = ship(
            candidate,
            self.device,
            self.graph.dims,
            sandbox=self.sandbox,
            cache_dir=self._cache_dir,
            cancel=self._stopping,
        )
        return {built.name: built.content, **shipment.files()}

    def build(self, candidate: Candidate) -> Build:
        """Screens and compiles a candidate. Returns the binary or, if that fails, the screen's diagnostics or the
        compiler's failure."""
        return self._build(candidate)[0]

    def verify_in_full(self, candidate: Candidate) -> Evaluation:
        """Verifies a candidate that is known to compile, with all cases of the full tier. Does not measure times."""
        return self.judge_binary(candidate, self._built(candidate), profile=False)

    def judge_binary(self, candidate: Candidate, binary: Binary, *, profile: bool) -> Evaluation:
        """Verifies a given binary in the full tier, and times it if `profile` is set. The screen is not run, except for
        the check of the plan's residual calls (operators that stay PyTorch's)."""
        key = hashlib.sha256(candidate.hash().encode() + binary.content).hexdigest()[:16]
        diagnostics = screen_residual(candidate.plan, self.graph, self.task.numerics)
        if diagnostics:
            return refused(key, Tier.full, diagnostics)
        spent: dict[str, float] = {}
        stages = TIMED if profile else UNTIMED
        answer, stage = self._measure(candidate, binary, key, Tier.full, spent, stages)
        return self._evaluation(candidate, key, Tier.full, stage, answer, binary, spent)

    def counters(self, candidate: Candidate) -> tuple[KernelCounters, ...]:
        """Returns the GPU's hardware counters for a verified candidate. Raises MissingError if they cannot be read."""
        if self.device.target != "cuda":
            raise MissingError("hardware counters are read on a GPU", "")
        cubin = self._built(candidate).content
        with self.alone():
            return count(candidate.plan, cubin, self.graph.dims, self.device.index, self.cancel)

    @property
    def waited(self) -> float:
        """The seconds for which this environment and its judge have waited for the device so far."""
        return self._lock.waited + self._judge_waited

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the device exclusively during the `with` block and pauses the job's other processes, for measurements
        without the judge. Raises Cancelled, and OutOfTime at the job's limit."""
        with self._lock.exclusive(self._stop_if_cancelled, patience=PATIENCE_SECONDS), self._others_paused():
            yield

    @contextmanager
    def _others_paused(self) -> Iterator[None]:
        with ExitStack() as paused:
            for pause in self.pausing:
                paused.enter_context(pause())
            yield

    def timed_by_judge(self) -> AbstractContextManager[None]:
        """Holds the device's lock during the `with` block, in which the judge measures. Does nothing on CUDA, where the
        judge takes the lock itself for each part of its measurement."""
        return self.alone() if self.device.target == "cpu" else nullcontext()

    def close(self) -> None:
        """Closes the task in the worker, which stays alive for the next one. Cancels builds that have not begun."""
        self._stopping.set()
        if self._ahead is not None:
            self._ahead.end()
        self._builders.shutdown(wait=True, cancel_futures=True)
        self.worker.release()

    def _built(self, candidate: Candidate) -> Binary:
        built = self._compiler.build(candidate)
        if isinstance(built, CompileFailure):
            raise WorkerError(f"a candidate that was built before no longer builds: {built.diagnostics[0].message}")
        return built

    def _open(self) -> OpGraph:
        params = {
            "task": to_builtins(self.task),
            "runner": self._runner_command(),
            "ceilings": ceilings_of(self.device),
            "quick_only": self._most is Tier.quick,
            "lock": self._lock.folder if self.device.target == "cuda" else None,
            "throughput": self._throughput,
            "nominal": self._nominal,
        }
        self.emit(Progress(phase="open", message=f"loading {self.task.name}"))
        answer = self._opened(params)
        graph = from_builtins(answer["graph"], OpGraph)
        self.facts = answer["facts"]
        self.emit(TaskOpened(graph=graph.text(), nodes=len(graph.nodes), facts=self.facts))
        beside = of_side_effects(self.task.class_name, self.facts)
        if beside and not self._restarts:
            self.emit(Warned(message=beside))
        return graph

    def _opened(self, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the worker's answer to `open_task`. Raises UsageError if the module breaks the device with its
        declared inputs. Other inputs with which it breaks the device are left out from then on."""
        while True:
            try:
                opening = {**params, "avoid": self._avoid}
                seconds = opening_seconds(self.clock, again=self._restarts > 0)
                return open_task(self.worker, opening, self.cancel, seconds, self.emit)
            except DeviceLost as lost:
                self.worker.restart(self.cancel)
                if not self._leave_out(lost):
                    raise UsageError(lost.cause, BROKE_DEVICE, detail=lost.detail) from lost

    def _leave_out(self, error: WorkerError) -> bool:
        """Whether the user's module itself broke the device, with optional inputs that `error` names. If so, adds these
        inputs to the list that the worker avoids, and warns."""
        if not isinstance(error, DeviceLost) or not error.inputs or error.inputs in self._avoid:
            return False
        self._avoid.append(error.inputs)
        self.emit(Warned(message=f"{error.cause} ({error.inputs}: no longer tried)"))
        return True

    def _runner_command(self) -> dict[str, Any]:
        paths = interpreter_paths(self.worker.python)
        gpu = self.device.target == "cuda"
        spec = SandboxSpec(
            argv=(paths[0], "-I", "-S", str(RUNNER / "boot.py"), "{fd}"),
            read_only=(*paths, str(RUNNER), *(self.worker.hello["library_folders"] if gpu else ())),
            gpu=gpu,
            # PyTorch asks for the user name, and the sandbox has no list of users.
            env={
                "USER": "nobody",
                "OMP_NUM_THREADS": str(self.worker.hello["threads"]),
                **self.worker.hello["binding"],
                **MEASURING,
            },
            limits=SandboxLimits(
                shared_bytes=self.device.memory_bytes,
                # Residual calls need torch, which maps several GiB.
                memory_bytes=max(self.device.memory_bytes // 4, 4 << 30) if not gpu else 16 << 30,
                processes=512,
                file_bytes=1 << 20,
                cpu_seconds=24 * 3600,
            ),
        )
        command = self.sandbox.command(spec)
        return {"argv": list(command.argv), "env": command.env, "device": self.device.index}

    def _build(self, candidate: Candidate) -> tuple[Build, float]:
        """Screens and compiles a candidate. Returns the result, and the seconds that compiling took."""
        diagnostics = (*screen(candidate, self.graph), *screen_residual(candidate.plan, self.graph, self.task.numerics))
        if diagnostics:
            return diagnostics, 0.0
        began = time.perf_counter()
        return self._compiler.build(candidate), time.perf_counter() - began

    def _judge(
        self,
        candidate: Candidate,
        build: Future[tuple[Build, float]],
        tier: Tier,
        repetition: RepeatedMeasurement = ONE_MEASUREMENT,
    ) -> Evaluation:
        self._stop_if_cancelled()
        key = candidate.hash()
        built, seconds = self._built_in_time(build)
        if isinstance(built, tuple):
            return refused(key, tier, built)
        spent = {"compile": seconds}
        if isinstance(built, CompileFailure):
            return not_compiled(key, tier, built, spent)
        stages = UNTIMED if tier is Tier.verify else TIMED
        answer, stage = self._measure(candidate, built, key, tier, spent, stages, repetition)
        return self._evaluation(candidate, key, tier, stage, answer, built, spent)

    def _measure(
        self,
        candidate: Candidate,
        built: Binary,
        key: str,
        tier: Tier,
        spent: dict[str, float],
        stages: tuple[Stage, ...],
        repetition: RepeatedMeasurement = ONE_MEASUREMENT,
    ) -> tuple[dict[str, Any], Stage]:
        params = {"plan": to_builtins(candidate.plan), "key": key, "tier": tier.value}
        if tier is Tier.full and Stage.profile in stages:
            # While it still compiles ahead, the comparison is with eager alone.
            compiled = self.wait_for_compile(0.0)
            self.baseline(compiled=compiled)
            params["full"] = {"compiled": compiled, **self._most_seconds()}
            self._warn_of_others()
        answer: dict[str, Any] = {}
        for stage in stages:
            began = time.perf_counter()
            try:
                if stage is Stage.profile:
                    latest = repetition.until_clear(
                        lambda measurement: self._profile(params, built, measurement), self.emit
                    )
                else:
                    # A confirmation on few cores is not slowed down by what the job does beside it.
                    alone = tier is Tier.full and self.device.target == "cpu"
                    with self._others_paused() if alone else nullcontext():
                        latest = self._call(stage.value, params, (built.content,), timeout=STAGE_SECONDS)
            except WorkerError as error:
                return {"outcome": "crashed", "message": f"the judge was lost and started anew: {error.cause}"}, stage
            spent[stage.value] = time.perf_counter() - began
            self._judge_waited = latest.pop("waited", self._judge_waited)
            answer = {**answer, **latest}
            if latest["outcome"] != "correct":
                answer.pop("accuracy", None)
                answer.pop("timing", None)
                return answer, stage
        return answer, stages[-1]

    def _evaluation(
        self,
        candidate: Candidate,
        key: str,
        tier: Tier,
        stage: Stage,
        answer: dict[str, Any],
        built: Binary,
        spent: dict[str, float],
    ) -> Evaluation:
        return measured(
            key,
            tier,
            stage,
            answer,
            spent,
            resources=built.resources,
            # All generated kernels compute in the output's dtype or in a wider one.
            precision=self.graph.spec(self.graph.outputs[0]).dtype,
            share_in_our_kernels=answer.get("share_in_our_kernels", 1.0),
            launches=tuple(from_builtins(one, LaunchTime) for one in answer.get("launches", ())),
            residual=tuple(launch.call.text() for launch in candidate.plan.launches if launch.call),
        )

    def _profile(self, params: dict[str, Any], built: Binary, measurement: tuple[int, int]) -> dict[str, Any]:
        with self.timed_by_judge():
            return self._call("profile", {**params, "look": measurement}, (built.content,), timeout=STAGE_SECONDS)

    def _built_in_time(self, build: Future[tuple[Build, float]]) -> tuple[Build, float]:
        """Waits for a build and returns its result. Raises Cancelled or OutOfTime while it waits."""
        while True:
            self._stop_if_cancelled()
            try:
                return build.result(timeout=POLL_SECONDS)
            except TimeoutError:
                continue
            except Cancelled:
                self._stop_if_cancelled()
                raise

    def _most_seconds(self) -> dict[str, float]:
        """Returns the limit `most_seconds` for a comparison in the full tier: half of the rest of the budget. Empty
        without a budget."""
        left = self.clock.left()
        return {"most_seconds": max(left / 2, 0.0)} if math.isfinite(left) else {}

    def _until_limit(self) -> float:
        return self.clock.until_limit()

    def _stop_if_cancelled(self) -> None:
        """Raises Cancelled, and OutOfTime at the limit of the job."""
        if self.cancel.is_set():
            raise Cancelled("cancelled")
        self.clock.check()

    def _warn_of_others(self) -> None:
        """Emits a warning if other processes use the GPU, because then timings are unreliable."""
        if self.device.target != "cuda":
            return
        others = cuda.other_processes(self.device.index)
        if others:
            self.emit(Warned(message=f"{others} other processes use GPU {self.device.index}: timings are unsafe"))

    def _time(self, which: str) -> dict[str, Any]:
        """Times the baseline `which` ("eager" or "compile") and returns the worker's answer. If the worker is lost,
        tries once more, because no candidate can be the cause."""
        try:
            return self._baseline_of(which)
        except WorkerError:
            return self._baseline_of(which)

    def _baseline_of(self, which: str) -> dict[str, Any]:
        self._call("prepare", {"which": which}, timeout=BASELINE_SECONDS)
        with self.timed_by_judge():
            return self._call("baseline", {"which": which}, timeout=BASELINE_SECONDS)

    def _call(
        self, method: str, params: dict[str, Any], blobs: tuple[bytes, ...] = (), *, timeout: float
    ) -> dict[str, Any]:
        """Calls the worker and returns its answer. If the worker is lost, starts a new one and opens the task there;
        then calls again if the user's module broke the device with inputs that can be left out, else raises
        WorkerError. Raises OutOfTime at the job's limit, and DeviceError if workers are lost too often."""
        self.clock.check()
        limit = min(timeout, self.clock.until_limit())
        try:
            return self.worker.call(method, params, blobs, timeout=limit, cancel=self.cancel)
        except WorkerError as error:
            self.clock.check()
            if self._leave_out(error):
                self.worker.restart(self.cancel)
                self._open()
                return self._call(method, params, blobs, timeout=timeout)
            self._restarts += 1
            if self._restarts > MOST_RESTARTS:
                self.worker.kill()
                raise DeviceError(f"the worker was lost {self._restarts} times: {error.cause}") from error
            self.emit(Warned(message=f"{error.cause}; starting it anew"))
            self._begin_anew()
            raise

    def _begin_anew(self) -> None:
        """Starts another worker and opens the task there. Raises OutOfTime if the job's limit comes first."""
        try:
            self.worker.restart(self.cancel, max(self.clock.until_limit(), 0.1))
            self._open()
        except (WorkerError, UsageError):
            self.clock.check()
            raise

    def _announce(self) -> None:
        compiled = self._baseline.compile_ms
        self.emit(
            BaselineMeasured(
                eager_ms=self._baseline.eager_ms,
                compile_ms=compiled,
                floor_ms=self._baseline.floor_ms,
                roofline_of_compile=self._baseline.floor_ms / compiled if compiled else 0.0,
            )
        )


@contextmanager
def open_environment(
    task: KernelTask,
    *,
    device: DeviceFacts,
    worker: WorkerClient,
    sandbox_mode: str,
    cache_dir: Path,
    cancel: threading.Event,
    emit: Emit,
    compiler: Compiler | None = None,
    lock: DeviceLock | None = None,
    most: Tier = Tier.full,
    throughput: bool = False,
    clock: JobClock | None = None,
    nominal: bool = False,
) -> Iterator[Environment]:
    """Yields an environment for the `with` block; the worker stays alive afterwards. The parameters are those of
    `Environment`. Raises UsageError, MissingError and Cancelled."""
    sandbox = choose(sandbox_mode)
    environment = Environment(
        task,
        device,
        worker,
        sandbox,
        cache_dir,
        emit,
        cancel,
        compiler=compiler,
        lock=lock,
        most=most,
        throughput=throughput,
        clock=clock,
        nominal=nominal,
    )
    try:
        yield environment
    finally:
        environment.close()
