"""The judge: holds the reference, decides what is correct and how fast it is. Trusted; generated code never runs here.

One judge per open task. A candidate reaches it as a plan and a binary, runs in a runner, and comes back as plain data.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from .cases import Case, fresh_seed, full_cases
from .device_lock import DeviceLock
from .open_task import OpenTask
from .profiling import Profiler
from .roofline import Ceilings
from .runner.pytorch.flags import read_flags
from .runner_client import CandidateFailure, RunnerClient, RunnerCommand, RunnerStartError
from .verification import Errors, Expected, Wrong, expect, verify_case

Answer = dict[str, Any]
LEAST_TIMEOUT = 10.0
#: Where many candidates are wrong on purpose, those that never end are waited for no longer than this.
QUICK_TIMEOUT = 3.0
#: For loading a candidate whose runner has to import torch.
IMPORT_TIMEOUT = 120.0
#: Expected outputs above this are computed anew for each candidate: device memory is for the sets.
KEEP_BYTES = 2 << 30


@dataclass
class Loaded:
    """The candidate that a runner holds."""

    key: str
    plan: dict[str, Any]
    runner: RunnerClient
    idle_threads: int


class Judge:
    """Verifies and profiles candidates of one task on one device.

    `quick_only`: in the quick tier alone. `lock` is that of the device, where the judge has to take it itself. `spare`
    is a runner that was started before. `throughput` leaves figures out that only people read.
    """

    def __init__(
        self,
        task: OpenTask,
        numerics: str,
        command: RunnerCommand,
        ceilings: Ceilings,
        quick_only: bool = False,
        lock: DeviceLock | None = None,
        spare: RunnerClient | None = None,
        throughput: bool = False,
    ) -> None:
        self.task, self.numerics, self.command, self._quick_only = task, numerics, command, quick_only
        self._lock = lock or DeviceLock()
        self._spare: RunnerClient | None = spare or RunnerClient(command)
        self._loaded: Loaded | None = None
        self._base_case = Case(0, "declared", None, fresh_seed())
        self._kept_base: Expected | None = None
        self._held_out: list[dict[str, int]] | None = None
        self._profiler: Profiler | None = None
        self._ceilings, self._throughput = ceilings, throughput
        self._least_timeout = QUICK_TIMEOUT if quick_only else LEAST_TIMEOUT
        self._timeout = self._least_timeout

    @property
    def waited(self) -> float:
        """Seconds that it has waited for the device."""
        return self._lock.waited

    @property
    def profiler(self) -> Profiler:
        """Made on first use: it needs the baseline's inputs."""
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
            )
        return self._profiler

    def prepare(self, which: str) -> None:
        """Make the profiler with its sets, and what a baseline is measured of."""
        with self._lock.shared():
            self._base()
            self.profiler.prepare(which)

    def baseline(self, which: str) -> Answer:
        """Time of the reference in eager mode or under torch.compile, in milliseconds."""
        with self._lock.shared():
            answer = self.profiler.baseline(which)
        self._timeout = max(self._least_timeout, 200 * answer.get("ms", 0.0) * 1e-3)
        return answer

    def verify(self, plan: dict[str, Any], binary: bytes, key: str, tier: str) -> Answer:
        """Outcome, message, and accuracy or mismatch. Quick: declared inputs. Full: all cases, fresh ones."""
        errors = Errors()
        inputs, shapes = 0, set()
        try:
            loaded = self._load(plan, binary, key)
            for case in self._cases(tier):
                tried = self._verify_case(loaded.runner, plan, case, errors)
                if tried is not None:
                    inputs += 1
                    shapes.add(tried)
            if plan.get("residual") and self.command.target == "cpu":
                self._require_own_kernels(loaded.runner)
        except Wrong as wrong:
            return {"outcome": wrong.outcome, "message": wrong.message, "mismatch": wrong.mismatch}
        except CandidateFailure as failed:
            return self._failed(failed)
        return {
            "outcome": "correct",
            "message": f"correct on {inputs} inputs of {len(shapes)} shapes",
            "accuracy": {
                "error": errors.error,
                "reference_error": errors.reference_error,
                "error_ratio": errors.ratio,
                "relative_error": errors.relative,
                "inputs_tried": inputs,
                "shapes_tried": len(shapes),
                "bit_reproducible": errors.reproducible,
                "reference": "f64" if self.task.reference_is_float64 else "same dtype",
            },
        }

    def profile(self, plan: dict[str, Any], binary: bytes, key: str, tier: str) -> Answer:
        """Outcome, message and timing. Refuses what is impossible or differs from what was verified."""
        try:
            loaded = self._load(plan, binary, key)
            return self.profiler.candidate(loaded.runner, plan, tier, self._timeout, loaded.idle_threads)
        except Wrong as wrong:
            return {"outcome": wrong.outcome, "message": wrong.message, "mismatch": wrong.mismatch}
        except CandidateFailure as failed:
            return self._failed(failed)

    def _require_own_kernels(self, runner: RunnerClient) -> None:
        """Kernels share a process with PyTorch there; only the calls that the plan declares may use it."""
        seen = runner.request({"op": "trace"}, self._timeout).get("operators")
        if seen:
            raise Wrong("cheating", f"PyTorch computes inside a kernel: {', '.join(map(str, seen))[:200]}")

    def release(self) -> RunnerClient | None:
        """As `close`, but a runner that can serve the next task stays: on a GPU, where nothing of a candidate ran on
        its host side. To start one, and for residual calls to import torch there, takes longer than to open a task."""
        runner = self._loaded.runner if self._loaded else self._spare
        if runner is None or self.command.target != "cuda" or runner.process.poll() is not None:
            self.close()
            return None
        if self._loaded is None:
            self._spare = None
        self._loaded = None
        self.close()
        try:
            runner.request({"op": "forget"}, LEAST_TIMEOUT)
        except (CandidateFailure, RunnerStartError):
            runner.close()
            return None
        return runner

    def close(self) -> None:
        """End all runners and give the shared memory back."""
        for runner in (self._spare, self._loaded.runner if self._loaded else None):
            if runner:
                runner.close()
        self._spare = self._loaded = None
        if self._profiler:
            self._profiler.close()

    def _cases(self, tier: str) -> list[Case]:
        if tier == "quick":
            return [self._base_case]
        if self._held_out is None:
            self._held_out = self.task.held_out_dims()
        return full_cases(len(self.task.workload_dims), self._held_out, bool(self.task.constants()))

    def _verify_case(
        self, runner: RunnerClient, plan: dict[str, Any], case: Case, errors: Errors
    ) -> tuple[tuple[int, ...], ...] | None:
        """Shapes of the inputs; None where the case does not apply.

        A case's tensors live in this call only: those of two do not fit beside one another where they are large.
        """
        with self._lock.shared():
            expected = self._base() if case is self._base_case else expect(self.task, case)
        if expected is None:
            return None
        verify_case(runner, plan, self.task, expected, self.numerics, self._timeout, errors, self._lock)
        return tuple(tuple(tensor.shape) for tensor in expected.tensors)

    def _base(self) -> Expected:
        """The declared inputs with their expected outputs; kept unless they are large."""
        if self._kept_base is not None:
            return self._kept_base
        found = expect(self.task, self._base_case)
        if found is None:  # pragma: no cover - the declared case is not optional
            raise RuntimeError("the declared inputs do not match the exported graph")
        if found.bytes <= KEEP_BYTES:
            self._kept_base = found
        return found

    def _load(self, plan: dict[str, Any], binary: bytes, key: str) -> Loaded:
        """A runner that holds this candidate: a fresh process on the CPU, a fresh module on CUDA.

        On CUDA the process is kept between candidates, because nothing of a candidate runs on the host side of it.
        """
        if self._loaded and self._loaded.key == key and self._loaded.runner.process.poll() is None:
            return self._loaded
        runner = self._take_runner()
        descriptor = os.memfd_create("binary", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, binary)
            os.lseek(descriptor, 0, os.SEEK_SET)
            message, timeout = {"op": "load", "plan": plan}, LEAST_TIMEOUT
            if plan.get("residual"):
                message, timeout = {**message, "flags": read_flags()}, IMPORT_TIMEOUT
            runner.request(message, timeout, (descriptor,))
        finally:
            os.close(descriptor)
        self._loaded = Loaded(key, plan, runner, runner.threads())
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
        return {"outcome": failed.outcome, "message": failed.message, "mismatch": None}
