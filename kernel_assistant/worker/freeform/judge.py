"""The judge of free-form candidates (Python files instead of plans): the same cases, comparisons and clock as for
plans. Trusted.

Only the runner's input differs: the candidate's file, how to build its class, and the reference's state.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from ..judge import Answer, Judge, LoadedCandidate
from ..measuring.profiling import most_threads
from ..opening.open_task import TENSOR, OpenTask
from ..process.worker_errors import TaskError
from ..running.runner_client import CandidateFailure, RunnerClient, RunnerCommand
from ..user_module.inputs import DTYPES
from ..user_module.loading import _init_arguments
from ..verifying.verification import IncorrectOutput
from .profiling import FreeformProfiler
from .spec import NotPlainError, TensorCollector, encode_tree, pack

#: Seconds for importing a candidate, which loads its extensions; Triton compiles at the first call of a kernel.
LOAD_SECONDS = 60.0
TRITON_SECONDS = 180.0


class FreeformJudge(Judge):
    """The judge of free-form candidates. Their `plan` holds `outputs` (names of the outputs), `runner` (the command
    that starts a runner) and `waits` (True if a call may compile kernels and so needs a longer time limit)."""

    runners_stay = False

    def verify(self, plan: dict[str, Any], binary: bytes, key: str, tier: str) -> Answer:
        """Verifies a candidate as `Judge.verify` does; in addition, a candidate whose forward computes with operators
        of torch fails with the outcome `cheating`, and the message names the operators."""
        if plan["waits"]:
            self._timeout = max(self._timeout, TRITON_SECONDS)
        return super().verify(plan, binary, key, tier)

    def _require_own(self, runner: RunnerClient, plan: dict[str, Any]) -> None:
        seen = runner.request({"op": "trace"}, self._timeout)
        operators = [str(name) for name in seen.get("operators", ())]
        if operators:
            raise IncorrectOutput("cheating", f"PyTorch computes in forward: {', '.join(operators[:5])}")

    @property
    def profiler(self) -> FreeformProfiler:
        if not isinstance(self._profiler, FreeformProfiler):
            self._profiler = FreeformProfiler(
                self.task,
                self._base(),
                self._ceilings,
                self.command.target,
                lock=self._lock,
                numerics=self.numerics,
                nominal=self._nominal,
            )
        return self._profiler

    def _load(self, plan: dict[str, Any], binary: bytes, key: str) -> LoadedCandidate:
        if self._loaded and self._loaded.key == key and self._loaded.runner.process.poll() is None:
            return self._loaded
        runner = self._runner_for(plan["runner"])
        descriptor = _memory_file(pack(*describe(self.task, plan, json.loads(binary))))
        try:
            runner.request({"op": "load"}, LOAD_SECONDS, (descriptor,))
        except CandidateFailure:
            runner.close()
            raise
        finally:
            os.close(descriptor)
        self._loaded = LoadedCandidate(key, plan, runner, most_threads(runner))
        return self._loaded

    def _runner_for(self, command: dict[str, Any]) -> RunnerClient:
        """Returns a runner in a new process for each candidate, so that no Python state of one candidate reaches the
        next. `command` is a plan's `runner`: a dict with `argv` and `env`."""
        if self._loaded:
            self._loaded.runner.close()
            self._loaded = None
        wanted = RunnerCommand(tuple(command["argv"]), command["env"], self.command.target, self.command.device)
        spare, self._spare = self._spare, None
        if spare and (spare.command != wanted or spare.process.poll() is not None):
            spare.close()
            spare = None
        runner = spare or RunnerClient(wanted)
        runner.wait_ready()
        return runner


def describe(task: OpenTask, plan: dict[str, Any], candidate: dict[str, Any]) -> tuple[dict[str, Any], TensorCollector]:
    """Returns a header with everything that a runner needs to build and call a candidate, and the tensors that the
    header refers to: the reference's state and constructor arguments.

    Raises TaskError unsupported_input where a constructor argument is neither plain data nor a tensor.
    """
    tensors = TensorCollector()
    state = task.model.state_dict()
    header = {
        "candidate": candidate,
        "seed": task.task["seed"],
        "training": bool(task.task["training"]),
        "arguments": _arguments(task, tensors),
        "template": encode_tree(task.template, _numbered()),
        "inputs": task.traced.input_specs,
        "outputs": task.out_specs,
        "output_names": [spec["name"] for spec in plan["outputs"]],
        "constants": _constants(task),
        "state": {path: tensors.add(value)["tensor"] for path, value in state.items()},
    }
    return header, tensors


def _arguments(task: OpenTask, tensors: TensorCollector) -> Any:
    try:
        return encode_tree(tuple(_init_arguments(task.module, task.task)), tensors.leaf)
    except NotPlainError as error:
        raise TaskError(
            "unsupported_input",
            f"a constructor argument of {task.task['class_name']} cannot be given to a candidate: {error}",
            "use numbers, strings, lists and tensors as constructor arguments",
        ) from error


def _numbered() -> Any:
    """Returns a `leaf` function for `encode_tree` that numbers the tensor inputs in the order of the call."""
    seen: list[int] = []

    def leaf(value: Any) -> dict[str, int] | None:
        if value is not TENSOR:
            return None
        seen.append(0)
        return {"input": len(seen) - 1}

    return leaf


def _constants(task: OpenTask) -> dict[str, dict[str, Any]]:
    """Returns, for the parameters and buffers that are in the memory shared with the runner: name in the graph →
    `{"path": dotted path, "spec": its dtype, shape and strides}`."""
    values = task.constants()
    return {
        name: {"path": path, "spec": _spec(values[name])}
        for name, (_, path, _) in task.traced.constants.items()
        if path
    }


def _spec(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "dtype": DTYPES[tensor.dtype],
        "shape": [str(size) for size in tensor.shape],
        "strides": [str(stride) for stride in tensor.stride()],
    }


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("candidate", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
