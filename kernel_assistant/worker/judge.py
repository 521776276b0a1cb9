"""The judge: holds the reference (the user's own module), decides whether a candidate is correct, and times it.
Trusted; generated code never runs here.

One judge per open task. A candidate arrives as a plan and a binary, runs in a runner (a sandboxed process), and its
results return as plain data.
"""

from __future__ import annotations

import copy
import os
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from .device_lock import DeviceLock
from .measuring.profiling import Profiler, ReadyCandidate, most_threads
from .measuring.roofline import Roofline
from .measuring.tiers.full_tier import FULL, ONLY_MEASUREMENT, FullComparison, MeasurementNumber
from .opening.open_task import OpenTask
from .runner.pytorch.flags import read_flags
from .running.runner_client import CandidateFailure, RunnerClient, RunnerCommand, RunnerStartError
from .user_module.loading import import_seconds
from .user_module.registering import operators_of_libraries, registering
from .verifying.case_sets import CaseSets
from .verifying.cases import Case, fresh_seed, full_cases
from .verifying.verification import ExpectedOutputs, IncorrectOutput, WorstErrors, expect, verify_case

Answer = dict[str, Any]
LEAST_TIMEOUT = 10.0
#: Seconds to wait for a call where many candidates are wrong on purpose and some never end.
QUICK_TIMEOUT = 3.0
#: Seconds for loading a candidate whose runner has to import torch.
IMPORT_TIMEOUT = 120.0
#: Expected outputs of more bytes are computed again for each candidate, because device memory is needed for the sets.
KEEP_BYTES = 2 << 30


@dataclass
class LoadedCandidate:
    """A candidate that is loaded in a runner. `key` identifies its plan and binary; `most_threads` is the number of
    threads that the runner may have between calls. `ready` is set once the candidate has been verified and prepared for
    timing."""

    key: str
    plan: dict[str, Any]
    runner: RunnerClient
    most_threads: int
    ready: ReadyCandidate | None = None


@dataclass
class VerifiedCases:
    """A summary of the cases (inputs of one workload, kind of values, and sizes) on which a candidate was correct so
    far: the worst errors, the number of inputs, and their shapes."""

    errors: WorstErrors = field(default_factory=WorstErrors)
    inputs: int = 0
    shapes: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)


class Judge:
    """Verifies and profiles candidates of one task on one device.

    `numerics` names the task's error policy, `command` starts a runner, `ceilings` are the device's limits for the
    roofline. `quick_only` means that only the quick tier is used. `lock` is given if the judge itself has to lock the
    device. `spare` is a runner that is running already. `throughput` leaves out figures that are only shown to people;
    `nominal` replaces measured by nominal times (measuring/nominal.py).
    """

    #: Whether a runner on a GPU serves several candidates.
    runners_stay = True

    def __init__(
        self,
        task: OpenTask,
        numerics: str,
        command: RunnerCommand,
        ceilings: Roofline,
        quick_only: bool = False,
        lock: DeviceLock | None = None,
        spare: RunnerClient | None = None,
        throughput: bool = False,
        nominal: bool = False,
    ) -> None:
        self.task, self.numerics, self.command, self._quick_only = task, numerics, command, quick_only
        self._lock = lock or DeviceLock()
        self._spare: RunnerClient | None = spare or RunnerClient(command)
        self._loaded: LoadedCandidate | None = None
        #: Whether a runner has imported modules of the user's.
        self._imports = False
        self._base_case, self._second_case = (Case(0, "declared", None, fresh_seed()) for _ in range(2))
        self._kept: dict[Case, ExpectedOutputs] = {}
        self._case_sets = CaseSets(task.input_names, keeps=command.target == "cuda" and self.runners_stay)
        self._held_out: list[dict[str, int]] | None = None
        self._profiler: Profiler | None = None
        self._ceilings, self._throughput, self._nominal = ceilings, throughput, nominal
        self._least_timeout = QUICK_TIMEOUT if quick_only else LEAST_TIMEOUT
        self._timeout = self._least_timeout

    @property
    def waited(self) -> float:
        """Total seconds that the judge has waited for the device's lock."""
        return self._lock.waited

    @property
    def profiler(self) -> Profiler:
        """The object that times candidates and baselines, created at first use because it needs the declared inputs
        with their expected outputs."""
        if self._profiler is None:
            self._profiler = Profiler(
                self.task,
                self._base(),
                self._ceilings,
                self.command.target,
                quick_only=self._quick_only,
                lock=self._lock,
                by_launch=not self._throughput,
                numerics=self.numerics,
                nominal=self._nominal,
            )
        return self._profiler

    def prepare(self, which: str) -> None:
        """Fills the memory for timing with sets (copies of the inputs and outputs, so many that they exceed the cache);
        if `which` is "compile", also compiles the module."""
        with self._lock.shared():
            self._base()
            self.profiler.prepare(which)
            if which == "compile":
                self._compare_compiled()

    def _compare_compiled(self) -> None:
        """Checks whether torch.compile is really as inexact as expected. If not, candidates may from now on only be as
        inexact as eager mode. With numerics `paper` nothing changes, because there the larger error is allowed for
        other reasons too."""
        if self.numerics == "paper":
            return
        if self.task.compiled_on_tensor_cores and not self.profiler.compiled_is_as_inexact(self._base()):
            self.task.compiled_on_tensor_cores = False
            self._kept.clear()
            self.profiler.outputs.take_own_errors(self._base())

    def baseline(self, which: str) -> Answer:
        """Times the reference in eager mode or under torch.compile (`which`: "eager" or "compile"). Returns a dict with
        the time `ms` and more, or with `failure`. Later time limits for candidates depend on `ms`."""
        with self._lock.shared():
            answer = self.profiler.baseline(which)
        self._timeout = max(self._least_timeout, 200 * answer.get("ms", 0.0) * 1e-3)
        return answer

    def verify(self, plan: dict[str, Any], binary: bytes, key: str, tier: str) -> Answer:
        """Compares a candidate's outputs with the reference's. Returns a dict with `outcome`, `message`, and
        `accuracy`, `sizes` and `elsewhere` if it is correct, otherwise `mismatch` (may be None). The full tier tries
        all cases, with newly drawn inputs; the quick tier tries one sample of the declared inputs; the tier `verify`
        tries two.

        The declared sizes come first. A candidate that fails at other sizes only is correct with `sizes` "declared",
        and `elsewhere` says how it failed there; cheating at any size counts. `key` identifies plan and binary.
        """
        cases = self._cases(tier)
        declared = [case for case in cases if case.dims is None]
        others = [case for case in cases if case.dims is not None]
        # Wait once, for verifying and preparing together: beside eleven judges each wait takes 240 ms.
        prepares = tier == "quick" and self.command.target == "cuda" and self.runners_stay
        try:
            loaded = self._load(plan, binary, key)
            loaded.ready = None
            with self._lock.shared() if prepares else nullcontext():
                tried = self._try(plan, binary, key, declared, VerifiedCases())
                if prepares:
                    loaded.ready = self.profiler.get_ready(loaded.runner, plan, tier, self._timeout)
            everywhere, elsewhere = self._try_others(plan, binary, key, others, tried)
            if elsewhere:
                # A candidate that counts calls to know when it is no longer checked fails here.
                self._try(plan, binary, key, [Case(0, "declared", None, fresh_seed())], tried)
        except IncorrectOutput as wrong:
            return {"outcome": wrong.outcome, "message": wrong.message, "mismatch": wrong.mismatch}
        except CandidateFailure as failed:
            return self._failed(failed)
        return self._correct(tried if elsewhere else everywhere, elsewhere)

    def _try_others(
        self, plan: dict[str, Any], binary: bytes, key: str, cases: list[Case], tried: VerifiedCases
    ) -> tuple[VerifiedCases, str]:
        """Verifies a candidate on `cases`, which have other sizes than the declared ones. Returns `tried` with these
        cases added, and a text that says how the candidate failed ("" if it did not; otherwise `tried` is as before).
        Raises IncorrectOutput for cheating."""
        if not cases:
            return tried, ""
        try:
            return self._try(plan, binary, key, cases, copy.deepcopy(tried)), ""
        except IncorrectOutput as wrong:
            if wrong.outcome == "cheating":
                raise
            return tried, wrong.message
        except CandidateFailure as failed:
            self._failed(failed)
            return tried, f"{failed.outcome.replace('_', ' ')}: {failed.message}"

    def _try(
        self, plan: dict[str, Any], binary: bytes, key: str, cases: list[Case], tried: VerifiedCases
    ) -> VerifiedCases:
        """Verifies a candidate on `cases`. Adds them to `tried` and returns it. Raises IncorrectOutput for wrong
        outputs or cheating, and CandidateFailure if the runner crashes, hangs or fails."""
        loaded = self._load(plan, binary, key)
        for case in cases:
            shapes = self._verify_case(loaded.runner, plan, case, tried.errors)
            if shapes is not None:
                tried.inputs += 1
                tried.shapes.add(shapes)
        self._require_own(loaded.runner, plan)
        return tried

    def _correct(self, tried: VerifiedCases, elsewhere: str) -> Answer:
        errors, where = tried.errors, f"{len(tried.shapes)} shapes"
        return {
            "outcome": "correct",
            "message": f"correct on {tried.inputs} inputs of {where}" + ("; not at other sizes" if elsewhere else ""),
            "sizes": "declared" if elsewhere else "all",
            "elsewhere": elsewhere,
            "accuracy": {
                "error": errors.error,
                "reference_error": errors.reference_error,
                "error_ratio": errors.ratio,
                "relative_error": errors.relative,
                "inputs_tried": tried.inputs,
                "shapes_tried": len(tried.shapes),
                "bit_reproducible": errors.reproducible,
                "reference": "f64" if self.task.reference_is_float64 else "same dtype",
            },
        }

    def profile(
        self,
        plan: dict[str, Any],
        binary: bytes,
        key: str,
        tier: str,
        measurement: MeasurementNumber = ONLY_MEASUREMENT,
        full: FullComparison = FULL,
    ) -> Answer:
        """Times a candidate that has been verified. Returns a dict with `outcome`, `message` and the timing; the
        outcome is a failure if a time is impossible, or if outputs differ from those that were verified.

        A repeated `measurement` adds to the rounds of the previous one (repeated_measurement.py).
        """
        try:
            loaded = self._load(plan, binary, key)
            ready, loaded.ready = loaded.ready, None
            return self.profiler.candidate(
                loaded.runner,
                plan,
                tier,
                self._timeout,
                loaded.most_threads,
                measurement,
                full,
                ready if tier == "quick" else None,
            )
        except IncorrectOutput as wrong:
            return {"outcome": wrong.outcome, "message": wrong.message, "mismatch": wrong.mismatch}
        except CandidateFailure as failed:
            return self._failed(failed)

    def _require_own(self, runner: RunnerClient, plan: dict[str, Any]) -> None:
        """Raises IncorrectOutput (cheating) if PyTorch does work that the candidate should do. Only a plan with
        residual calls (operators left to PyTorch) on the CPU is checked: there the kernels share a process with
        PyTorch, and only the declared calls may use it."""
        if not plan.get("residual") or self.command.target != "cpu":
            return
        seen = runner.request({"op": "trace"}, self._timeout).get("operators")
        if seen:
            raise IncorrectOutput("cheating", f"PyTorch computes inside a kernel: {', '.join(map(str, seen))[:200]}")

    def release(self) -> RunnerClient | None:
        """Closes the judge, and returns its runner if that can serve the next task, else None. Only a runner on a GPU
        may, because no code of a candidate ran on its host side. It is kept because starting a runner, and importing
        torch there for residual calls, takes longer than opening a task."""
        runner = self._loaded.runner if self._loaded else self._spare
        if runner is None or self.command.target != "cuda" or self._imports or runner.process.poll() is not None:
            self.close()
            return None
        if self._loaded is None:
            self._spare = None
        self._loaded = None
        self.close()
        try:
            runner.request({"op": "forget"}, LEAST_TIMEOUT)
            runner.mapped.clear()
        except (CandidateFailure, RunnerStartError):
            runner.close()
            return None
        return runner

    def close(self) -> None:
        """Ends all runners and frees the shared memory."""
        for runner in (self._spare, self._loaded.runner if self._loaded else None):
            if runner:
                runner.close()
        self._spare = self._loaded = None
        self._case_sets.close()
        if self._profiler:
            self._profiler.close()

    def _cases(self, tier: str) -> list[Case]:
        if tier == "verify":
            # Nothing is timed, where other inputs would show a candidate that keeps what it computed for the first.
            return [self._base_case, self._second_case]
        if tier != "full":
            return [self._base_case]
        if self._held_out is None:
            self._held_out = self.task.held_out_dims()
        return full_cases(len(self.task.workload_dims), self._held_out, bool(self.task.constants()))

    def _verify_case(
        self, runner: RunnerClient, plan: dict[str, Any], case: Case, errors: WorstErrors
    ) -> tuple[tuple[int, ...], ...] | None:
        """Verifies a candidate on one case and adds its errors to `errors`. Returns the shapes of the inputs; None if
        the case does not apply. Raises IncorrectOutput or CandidateFailure.

        A case's tensors are freed at the end of this call: those of two cases do not fit into memory if they are large.
        """
        often = case in (self._base_case, self._second_case)
        with self._lock.shared():
            expected = self._expected(case) if often else expect(self.task, case, as_compiled=True)
            if expected is None:
                return None
            with self._case_sets.of(plan, expected, often) as sets:
                verify_case(runner, plan, self.task, sets, expected, self.numerics, self._timeout, errors, self._lock)
        return tuple(tuple(tensor.shape) for tensor in expected.tensors)

    def _base(self) -> ExpectedOutputs:
        return self._expected(self._base_case)

    def _expected(self, case: Case) -> ExpectedOutputs:
        """Returns the inputs of a declared case with their expected outputs. They are kept for the next candidate
        unless they are large."""
        if case in self._kept:
            return self._kept[case]
        expected = expect(self.task, case, as_compiled=True)
        if expected is None:  # pragma: no cover - the declared case is not optional
            raise RuntimeError("the declared inputs do not match the exported graph")
        if expected.bytes <= KEEP_BYTES:
            self._kept[case] = expected
        return expected

    def _load(self, plan: dict[str, Any], binary: bytes, key: str) -> LoadedCandidate:
        """Loads a candidate into a runner, unless it is loaded already. On the CPU the runner is a new process.

        On CUDA the process is kept between candidates, because no code of a candidate runs on its host side. `key`
        identifies plan and binary.
        """
        if self._loaded and self._loaded.key == key and self._loaded.runner.process.poll() is None:
            return self._loaded
        runner = self._take_runner()
        alone = self.command.target == "cpu" and not plan.get("residual")
        if alone:
            # Counted before the candidate is loaded: whatever it starts itself comes on top.
            runner.request({"op": "threads"}, LEAST_TIMEOUT)
            openmp_threads = runner.threads()
        descriptor = os.memfd_create("binary", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, binary)
            os.lseek(descriptor, 0, os.SEEK_SET)
            message, timeout = {"op": "load", "plan": plan}, LEAST_TIMEOUT
            if plan.get("residual"):
                libraries = registering(operators_of_libraries(plan), self.task.module, self.task.task["content"])
                message |= {"flags": read_flags(), "libraries": libraries}
                timeout = IMPORT_TIMEOUT + import_seconds(self.task.task["path"])
                self._imports = self._imports or bool(libraries["imports"])
            runner.request(message, timeout, (descriptor,))
        finally:
            os.close(descriptor)
        self._loaded = LoadedCandidate(key, plan, runner, openmp_threads if alone else most_threads(runner))
        return self._loaded

    def _take_runner(self) -> RunnerClient:
        held, self._loaded = self._loaded, None
        if held and self.command.target == "cuda" and held.runner.process.poll() is None:
            return held.runner
        if held:
            held.runner.close()
        runner, self._spare = self._spare or RunnerClient(self.command), None
        if self.command.target == "cpu":
            self._spare = RunnerClient(self.command)
        runner.wait_ready()
        return runner

    def _failed(self, failed: CandidateFailure) -> Answer:
        if self._loaded:
            self._loaded.runner.close()
            self._loaded = None
        # What it has begun on the device may end later than its process.
        self._case_sets.close()
        return {"outcome": failed.outcome, "message": failed.message, "mismatch": None}
