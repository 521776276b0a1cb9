"""Verifies one candidate on one case (one choice of inputs): runs it in the runner and compares every output with
float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ..applied.strided import copied, copy_as_it_lies, writable
from ..device_lock import DeviceLock
from ..process.worker_errors import TaskError, with_inputs
from ..running.buffer_sets import BufferSets
from ..running.runner_client import CandidateFailure, RunnerClient
from ..running.storages import copies
from .cases import Case
from .choice_bounds import compare_choice
from .choices import Choice, paired, watched
from .numerics import OutputComparison, compare, less_exact
from .sensitivity import moves_as_far

if TYPE_CHECKING:
    from ..opening.open_task import OpenTask

POISONS = (0xFF, 0x7B)


@dataclass
class ExpectedOutputs:
    """The inputs of one case (`tensors`) with PyTorch's outputs (`reference`), the float64 outputs (`want`), sizes
    (`dims`), and parameters and buffers (`constants`). `choices` has, for each output that holds indices chosen by an
    operator such as argmax, its `Choice`, and None for the others; or it is empty."""

    case: Case
    tensors: list[torch.Tensor]
    reference: list[torch.Tensor]
    want: list[torch.Tensor]
    dims: dict[str, int]
    constants: dict[str, torch.Tensor]
    choices: list[Choice | None] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Returns the bytes of all tensors of the case."""
        held = [*self.tensors, *self.reference, *self.want, *self.constants.values()]
        chosen = sum(choice.bytes for choice in self.choices if choice is not None)
        return chosen + sum(tensor.numel() * tensor.element_size() for tensor in held)

    def compare(self, position: int, got: torch.Tensor, policy: str, usual: float = 0.0) -> OutputComparison:
        """Compares a candidate's output number `position` with PyTorch's, by the error policy `policy`. `usual` is the
        root mean square of the output on the declared inputs."""
        choice = self.choices[position] if self.choices else None
        if choice is not None:
            return compare_choice(got, choice)
        return compare(got, self.reference[position], self.want[position], policy, usual)


class IncorrectOutput(Exception):
    """The candidate failed a check. `outcome` is the name of the failure, such as "incorrect" or "cheating"; `mismatch`
    is a dict as `describe` returns it, or None."""

    def __init__(self, outcome: str, message: str, mismatch: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.outcome, self.message, self.mismatch = outcome, message, mismatch


@dataclass
class WorstErrors:
    """The worst errors of all outputs compared so far: `ratio` is the candidate's error over PyTorch's, `relative` the
    relative error in the 2-norm. `usual` has the root mean square of each output on the declared inputs, which are the
    first case in every tier."""

    error: float = 0.0
    reference_error: float = 0.0
    ratio: float = 0.0
    relative: float = 0.0
    reproducible: bool = True
    usual: dict[str, float] = field(default_factory=dict)

    def add(self, result: OutputComparison, dtype: torch.dtype) -> None:
        self.error = max(self.error, result.error)
        self.reference_error = max(self.reference_error, result.reference_error)
        self.ratio = max(self.ratio, error_ratio(result))
        if result.squared_norm:
            self.relative = max(self.relative, math.sqrt(result.squared_error / result.squared_norm))


def error_ratio(result: OutputComparison) -> float:
    """Returns the candidate's error as a multiple of PyTorch's error; 1 if both are 0.

    PyTorch's error counts as at least half a unit in the last place of the largest value, because it may be exact by
    chance, for example on ones and zeros."""
    least = max(result.reference_error, result.half_ulp)
    return result.error / least if least else 1.0


def expect(task: OpenTask, case: Case, as_compiled: bool = False) -> ExpectedOutputs | None:
    """Returns inputs and expected outputs of a case; None if the case does not apply to this task, or if memory for an
    optional case is missing. With `as_compiled`, the reference is whichever is less exact: the outputs of eager mode or
    those of torch.compile (opening/tensor_cores.py)."""
    had_float64 = task.reference_is_float64
    if case.optional and case.name in task.avoid:
        return None
    try:
        dims = dict(case.dims) if case.dims is not None else None
        args, kwargs = task.inputs(case.workload, case.seed, case.variant, dims)
        with reweighted(task, case.seed, case.reweighted), with_inputs(case.name if case.optional else ""):
            reference, picked = watched(task.graph, lambda: task.call(args, kwargs))
            want, exact = watched(task.graph, lambda: task.call64(args, kwargs))
            turned = task.on_tensor_cores(args, kwargs) if as_compiled and task.reference_is_float64 else None
            constants = copies(task.constants())
            task.settle()
            if turned is not None:
                reference = [less_exact(*three) for three in zip(reference, turned, want, strict=True)]
        tensors = task.flatten(args, kwargs)
    except (TaskError, torch.OutOfMemoryError):
        if not case.optional:
            raise
        reference, want, picked, exact = [], [], [], []
    if case.optional and (not reference or task.reference_is_float64 != had_float64):
        # If the declared case has a float64 result, other cases need one too; a larger size may lack the memory for it.
        task.reference_is_float64 = had_float64
        return None
    sizes = {**task.workload_dims[case.workload], **(dims or {})}
    if case.optional and case.variant != "declared" and not all_finite(reference):
        return None
    return ExpectedOutputs(case, tensors, reference, want, sizes, constants, paired(picked, exact))


def bind(
    sets: BufferSets, runner: RunnerClient, plan: dict[str, Any], lock: DeviceLock, quick: bool = False
) -> dict[str, Any]:
    """Gives the runner the addresses of the sets (copies of inputs and outputs), and lets it run the plan's `prepare`
    launches. Returns its answer. If the plan has library launches, the device is held exclusively, because the runner
    then chooses the libraries' algorithms by timing them. With `quick`, it chooses among few."""
    chooses = any(launch.get("library") for launch in plan.get("launches", ()))
    with lock.exclusive() if chooses else nullcontext():
        # Kernels for CUDA are the only code of a candidate with library launches.
        return sets.bind(runner, quick, keep=chooses and sets.readable.bytes.is_cuda)


def verify_case(
    runner: RunnerClient,
    plan: dict[str, Any],
    task: OpenTask,
    sets: BufferSets,
    expected: ExpectedOutputs,
    policy: str,
    timeout: float,
    errors: WorstErrors,
    lock: DeviceLock,
) -> None:
    """Runs the candidate twice on one case, with outputs that are filled with a different byte before each run, and
    compares its outputs; adds their errors to `errors`. `timeout` is in seconds. Raises IncorrectOutput or
    CandidateFailure."""
    # Bound before the inputs are there: `prepare` may use parameters only.
    # Nothing is timed at other sizes.
    bind(sets, runner, plan, lock, quick=expected.case.dims is not None)
    sets.write(0, expected.tensors)
    first = _run_poisoned(runner, sets, POISONS[0], timeout, expected)
    check_outputs(plan, sets.outputs[0], expected, policy, errors, task)
    _run_poisoned(runner, sets, POISONS[1], timeout, expected)
    if not all(same_bits(a, b) for a, b in zip(first, sets.outputs[0], strict=True)):
        errors.reproducible = False
        _check_repeat(plan, sets.outputs[0], expected, policy, errors, task)
    if sets.readable.bytes.is_cuda and not _inputs_kept(sets, expected):
        raise IncorrectOutput("incorrect", f"{expected.case.name}: an input was changed")


def made_sets(
    input_names: list[str], output_names: list[str], expected: ExpectedOutputs, count: int, prefix: str = ""
) -> BufferSets:
    """Returns shared memory for `count` sets (copies of inputs and outputs) of the sizes of `expected`, with its
    parameter values written. `prefix` begins the names of the memory ranges."""
    return BufferSets(
        input_names,
        output_names,
        expected.constants,
        expected.tensors,
        expected.reference,
        expected.dims,
        count,
        expected.reference[0].device,
        prefix,
    )


def _run_poisoned(
    runner: RunnerClient, sets: BufferSets, poison: int, timeout: float, expected: ExpectedOutputs
) -> list[torch.Tensor]:
    sets.poison(poison)
    if sets.writable.bytes.is_cuda:
        torch.cuda.synchronize()
    runner.request({"op": "run", "first": 0, "count": 1}, timeout)
    if sets.stray_write(poison):
        raise IncorrectOutput("incorrect", f"{expected.case.name}: wrote outside its outputs")
    return [output.clone() for output in sets.outputs[0]]


def check_outputs(
    plan: dict[str, Any],
    outputs: list[torch.Tensor],
    expected: ExpectedOutputs,
    policy: str,
    errors: WorstErrors,
    task: OpenTask | None = None,
) -> None:
    """Compares all outputs of a case under the error policy `policy` and adds their errors to `errors`. Raises
    IncorrectOutput with the worst element. If `task` is given, a few elements may be beyond the tolerance, provided
    that PyTorch's own results there change as much after its inputs are rounded in another way."""
    for position, (spec, got) in enumerate(zip(plan["outputs"], outputs, strict=True)):
        result = expected.compare(position, got, policy, errors.usual.get(spec["name"], 0.0))
        if not result.passed and not (task and result.places and _moves(task, expected, position, got, result)):
            # Integers equal the reference, or choose as well; it may differ from float64 at ties.
            due = (expected.want if got.dtype.is_floating_point else expected.reference)[position]
            mismatch = describe(spec["name"], got, due, result, expected.case.name)
            raise IncorrectOutput("incorrect", message_of(mismatch), mismatch)
        errors.add(result, got.dtype)
        errors.usual.setdefault(spec["name"], result.rms)


def _moves(
    task: OpenTask, expected: ExpectedOutputs, position: int, got: torch.Tensor, result: OutputComparison
) -> bool:
    indices, case = list(result.places), expected.case
    mine, exact = (tensor.reshape(-1)[indices] for tensor in (got, expected.want[position]))
    with reweighted(task, case.seed, case.reweighted):
        return moves_as_far(task, expected.tensors, position, mine, exact, indices)


def _check_repeat(
    plan: dict[str, Any],
    outputs: list[torch.Tensor],
    expected: ExpectedOutputs,
    policy: str,
    errors: WorstErrors,
    task: OpenTask,
) -> None:
    """Compares the outputs of a second run. Their bits may differ from those of the first run, but only within bounds;
    otherwise raises IncorrectOutput with the outcome `nondeterministic`."""
    try:
        check_outputs(plan, outputs, expected, policy, errors, task)
    except IncorrectOutput as wrong:
        message = f"right at first, wrong when run again on the same input: {wrong.message}"
        raise IncorrectOutput("nondeterministic", message, wrong.mismatch) from wrong


def describe(
    name: str, got: torch.Tensor, want: torch.Tensor, result: OutputComparison, workload: str
) -> dict[str, Any]:
    """Returns a dict about an output that failed: its name, the index of its worst element, the values there, how many
    elements fail and of how many, and why; `workload` names the inputs."""
    flat, index = result.worst, []
    for size in reversed(got.shape):
        index.append(flat % size)
        flat //= size
    position = tuple(reversed(index))
    return {
        "output": name,
        "index": list(position),
        "got": finite(float(got[position])),
        "want": finite(float(want[position])),
        "workload": workload,
        "count": result.failures,
        "total": got.numel(),
        "why": result.why,
    }


def message_of(mismatch: dict[str, Any]) -> str:
    position = ",".join(map(str, mismatch["index"]))
    got, want = ((f"{value:.6g}" if value is not None else "nan") for value in (mismatch["got"], mismatch["want"]))
    share = f"{mismatch['count']} of {mismatch['total']} elements" if mismatch["count"] else "the norm of the error"
    return f"{mismatch['output']}[{position}] got {got} want {want} ({share}, {mismatch['workload']})"


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@contextmanager
def reweighted(task: OpenTask, seed: int, active: bool) -> Iterator[None]:
    """Context manager: within the block, all floating parameters and buffers of the module, and of its float64 copy if
    there is one, are multiplied by random factors in [0.5, 1.5). Does nothing unless `active`."""
    if not active:
        yield
        return
    models = [task.model, task.float64_model()] if task.reference_is_float64 else [task.model]
    saved = [[copied(value.detach()) for value in _floating(model)] for model in models]
    generator = torch.Generator(task.device).manual_seed(seed)
    with torch.no_grad():
        for pair in zip(*[_floating(model) for model in models], strict=True):
            held = writable(pair[0])
            factors = 0.5 + torch.rand(held.shape, generator=generator, device=task.device)
            held.mul_(factors.to(held.device, held.dtype))
            for copy in pair[1:]:
                copy_as_it_lies(copy, pair[0])
    try:
        with task.held.beginning_as(task.model):
            yield
    finally:
        with torch.no_grad():
            for model, values in zip(models, saved, strict=True):
                for value, old in zip(_floating(model), values, strict=True):
                    copy_as_it_lies(value, old)


def _floating(model: torch.nn.Module) -> list[torch.Tensor]:
    return [value for value in [*model.parameters(), *model.buffers()] if value.dtype.is_floating_point]


def all_finite(tensors: list[torch.Tensor]) -> bool:
    """Whether all values of the floating tensors are finite; other tensors do not count."""
    return all(bool(torch.isfinite(value).all()) for value in tensors if value.dtype.is_floating_point)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or torch.equal(torch.nan_to_num(a, nan=0.5), torch.nan_to_num(b, nan=0.5))


def _inputs_kept(sets: BufferSets, expected: ExpectedOutputs) -> bool:
    pairs = zip(sets.inputs[0], expected.tensors, strict=True)
    return all(
        same_bits(view, value) if value.dtype.is_floating_point else torch.equal(view, value) for view, value in pairs
    )


__all__ = ["CandidateFailure", "ExpectedOutputs", "IncorrectOutput", "WorstErrors", "expect", "verify_case"]
