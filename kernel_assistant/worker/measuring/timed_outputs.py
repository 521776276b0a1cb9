"""Compares outputs of timed calls with the reference's: a candidate that was verified has to compute the same values
while it is timed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ..applied.strided import copied, overlaps
from ..opening.open_task import OpenTask
from ..running.buffer_sets import BufferSets
from ..verifying.choice_bounds import part_chosen
from ..verifying.numerics import OutputComparison, WholeOutput, compare, less_exact, surely_passes
from ..verifying.sensitivity import moves_as_far
from ..verifying.verification import ExpectedOutputs, IncorrectOutput, describe, message_of, same_bits
from .timing import PlanSubject

WINDOW = 1 << 20
#: Largest share of differing values, and their largest number in an output of enough values, that may be at a tie or a
#: jump, where two correct roundings differ. A candidate gains nothing by computing these wrongly.
FEW_SHARE, FEW_PLACES, ENOUGH = 1e-4, 8, 16

#: An error of at most this many times PyTorch's own error on the declared inputs passes.
OWN_TIMES = 4
#: Inputs and outputs of a set of more bytes are not kept for a later check.
KEEP_BYTES = 64 << 20


@dataclass(frozen=True)
class TimedCall:
    """A call that was timed: the index of its set (copy of inputs and outputs), its inputs, and a part of each
    flattened output, from index start to end as in `windows`. `kept` means that the inputs are copies, which do not
    change when the set gets new values."""

    index: int
    inputs: list[torch.Tensor]
    windows: list[tuple[int, int]]
    outputs: list[torch.Tensor]
    kept: bool


class TimedOutputs:
    """Checks the outputs that timed calls have written into one task's sets (copies of inputs and outputs). `numerics`
    is the error policy, `base` has the declared inputs with their expected outputs."""

    def __init__(self, task: OpenTask, sets: BufferSets, base: ExpectedOutputs, numerics: str) -> None:
        self.task, self.sets = task, sets
        self._policy = "strict while timed" if numerics == "strict" else numerics
        self._usual = [_rms(want) for want in base.want]
        self.take_own_errors(base)

    def take_own_errors(self, base: ExpectedOutputs) -> None:
        """Takes the largest errors of `base.reference` as PyTorch's own errors on the declared inputs from now on."""
        self.own_errors = [_own_error(*pair) for pair in zip(base.reference, base.want, strict=True)]

    def check(self, subject: PlanSubject, chosen: Iterable[int]) -> None:
        """Compares parts of the outputs of the timed sets with the indices `chosen`, which must have been chosen after
        the timing, with the reference's. Raises IncorrectOutput."""
        for index in chosen:
            self.check_call(subject, self.hold(index, keep=False))

    def hold(self, index: int, keep: bool = True) -> TimedCall:
        """Copies a random window (a range of elements) of each output of the timed call on set `index`, and its inputs
        if `keep` is set and they are small enough. Returns them as a `TimedCall`."""
        outputs, inputs = self.sets.outputs[index], self.sets.inputs[index]
        windows = [_window(output) for output in outputs]
        held = [output.reshape(-1)[start:end].clone() for output, (start, end) in zip(outputs, windows, strict=True)]
        keep = keep and self.sets.bytes_per_set <= KEEP_BYTES
        keep = keep and not any(overlaps(tensor.shape, tensor.stride()) for tensor in inputs)
        return TimedCall(index, [copied(tensor) for tensor in inputs] if keep else inputs, windows, held, keep)

    def check_held(self, subject: PlanSubject, calls: list[TimedCall]) -> None:
        """Compares the outputs of timed calls as `check_call` does. If all are surely correct, this takes only one
        transfer from the device. Raises IncorrectOutput."""
        passed = [
            surely_passes(got, reference.reshape(-1)[start:end], self._policy, OWN_TIMES * own)
            for call in calls
            for got, (start, end), reference, own in zip(
                call.outputs,
                call.windows,
                self.task.call(*self.task.unflatten(call.inputs)),
                self.own_errors,
                strict=True,
            )
        ]
        if passed and not bool(torch.stack(passed).all()):
            for call in calls:
                self.check_call(subject, call)

    def check_call(self, subject: PlanSubject, call: TimedCall) -> None:
        """Compares the outputs of a timed call with the reference's. Raises IncorrectOutput with the outcome `cheating`
        or `incorrect`."""
        args, kwargs = self.task.unflatten(call.inputs)
        for position, reference in enumerate(self.task.call(args, kwargs)):
            start, end = call.windows[position]
            part = reference.reshape(-1)[start:end]
            got, want = call.outputs[position], part.double() if part.dtype.is_floating_point else part
            result = compare(got, part, want, self._policy)
            if result.passed or self._excused(result.error, position):
                continue
            # PyTorch's own rounding error may be the larger one, here or elsewhere in the output: compare with
            # float64, which takes longer. The bounds are those of the whole output, as in verification.
            if part.dtype.is_floating_point:
                exact = self.task.exact(args, kwargs)
                whole = reference if exact is None else exact[position]
                want = whole.reshape(-1)[start:end].double()
                turned = None if exact is None else self.task.on_tensor_cores(args, kwargs)
                least = reference if turned is None else less_exact(reference, turned[position], whole)
                bounds = WholeOutput(least, whole)
                result = compare(got, part, want, self._policy, self._usual[position], bounds)
                if result.passed or self._moves(call, position, want, result.places):
                    continue
            elif part_chosen(self.task, (args, kwargs), position, reference, got, start):
                continue
            mismatch = describe(f"out{position}", got, want, result, "while timed")
            outcome, words = _verdict(result, part.dtype.is_floating_point, part.numel())
            if outcome == "incorrect" and self._differs_again(subject, call, position):
                outcome, words = "cheating", "other values while timed than when asked again"
            raise IncorrectOutput(outcome, f"{words}: {message_of(mismatch)}", mismatch)

    def _moves(self, call: TimedCall, position: int, want: torch.Tensor, indices: tuple[int, ...]) -> bool:
        """Whether PyTorch, with its inputs rounded differently, deviates from float64 as much as the candidate does at
        the elements `indices` of the compared range of output number `position`; False if `indices` is empty."""
        if not indices:
            return False
        got, start = call.outputs[position], call.windows[position][0]
        mine, exact, whole = got[list(indices)], want[list(indices)], [start + index for index in indices]
        return moves_as_far(self.task, call.inputs, position, mine, exact, whole)

    def _differs_again(self, subject: PlanSubject, call: TimedCall, position: int) -> bool:
        """Runs the candidate twice more on the inputs of the call. Returns whether both runs give the same bits, but
        other bits than the timed call did: then neither rounding nor the order of additions explains the difference."""
        answers, (start, end) = [], call.windows[position]
        if call.kept:
            self.sets.write(call.index, call.inputs)
        for _ in range(2):
            subject.both(call.index, 1)
            answers.append(self.sets.outputs[call.index][position].reshape(-1)[start:end].clone())
        return same_bits(*answers) and not same_bits(answers[0], call.outputs[position])

    def _excused(self, error: float, position: int) -> bool:
        """Whether an error of output number `position` is at most a fixed multiple of PyTorch's own largest error on
        the declared inputs. This needs no float64 run."""
        return error <= OWN_TIMES * self.own_errors[position]


def _verdict(result: OutputComparison, floating: bool, size: int) -> tuple[str, str]:
    """Returns (outcome, message) for a mismatch that occurs only while timed. `size` is the number of elements
    compared."""
    if result.why == "norm":
        return "incorrect", "more rounding than where it was verified"
    if few_places(result.failures, size):
        return "incorrect", f"another answer at a {'jump' if floating else 'tie'}, perhaps"
    return "cheating", "other values while timed"


def few_places(failures: int, size: int) -> bool:
    """Whether so few of `size` values are wrong (`failures`) that different rounding may explain them. False if the
    output has few values."""
    return failures <= max(FEW_SHARE * size, min(FEW_PLACES, size // ENOUGH))


def _window(output: torch.Tensor) -> tuple[int, int]:
    size = output.numel()
    start = random.SystemRandom().randrange(max(size - WINDOW, 0) + 1)
    return start, min(start + WINDOW, size)


def _rms(want: torch.Tensor) -> float:
    """Returns the root mean square of the finite values of a float64 tensor; 0 for a tensor of integers or booleans."""
    if not want.dtype.is_floating_point:
        return 0.0
    return compare(want, want, want, "paper").rms


def _own_error(reference: torch.Tensor, want: torch.Tensor) -> float:
    """Returns PyTorch's largest error against float64 on the declared inputs; 0 for integers."""
    return compare(reference, reference, want, "paper").error if reference.dtype.is_floating_point else 0.0
