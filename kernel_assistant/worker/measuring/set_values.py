"""Puts new input values, and marks in the outputs, into a task's sets (copies of inputs and outputs) before each timed
block of calls, so that a candidate has to compute while it is timed."""

from __future__ import annotations

import random
import time

import torch

from ..opening.open_task import OpenTask
from ..process.worker_errors import TaskError
from ..running.buffer_sets import BufferSets, Marks
from ..verifying.cases import fresh_seed
from ..verifying.verification import IncorrectOutput

#: Seconds for making other inputs of the task, for the integers of one block.
SAMPLE_SECONDS = 0.01

#: Inputs of several calls.
Samples = list[list[torch.Tensor]]


class SetValues:
    """Changes the inputs of `sets` (copies of inputs and outputs) and marks their outputs. `rolls` says for each input
    whether its leading dimension may be rolled, `base` are the declared inputs, and `evicted` bytes are written after
    each change, so that none of the new values is in a cache."""

    def __init__(
        self, task: OpenTask, sets: BufferSets, rolls: list[bool], base: list[torch.Tensor], evicted: int
    ) -> None:
        self._task, self._sets, self._rolls = task, sets, rolls
        self._generator = torch.Generator().manual_seed(random.SystemRandom().randrange(1 << 31))
        self._evictor = torch.zeros(evicted, dtype=torch.uint8, device=task.device)
        #: Seconds for making the other inputs of a block.
        self.sample_seconds = SAMPLE_SECONDS
        #: Whether inputs of another seed have other integers, in the same sizes.
        self.integers_vary = self._vary_integers(base)
        self._marks: Marks | None = None
        self._unfinished = False

    def refresh(self, first: int = 0) -> None:
        """Puts new values into the inputs of every set, beginning at set number `first`."""
        self._sets.refresh(self._generator, self._rolls, first)

    def renew(self, indices: list[int], others: Samples | None = None) -> None:
        """Changes the input values of the sets with these indices, because a candidate may have seen the old ones, and
        evicts the new values from the cache: then neither remembered results nor results computed in advance help.
        `others` are inputs that `draw` returned before."""
        if indices:
            drawn = self.draw(len(indices)) if others is None else others
            self._sets.change(indices, self._generator, self._rolls, drawn)
            self.evict()

    def evict(self) -> None:
        """Fills the cache with other values. This precedes the timed blocks of both sides of a comparison, because the
        next block is slower while modified cache lines have to be written back."""
        self._evictor.add_(1)
        self._task.settle()

    def mark(self, block: list[int]) -> None:
        """Puts new marks (words of a random pattern) into the outputs of the sets with these indices. A call that
        writes its outputs overwrites them."""
        self._marks, self._unfinished = self._sets.mark(block, self._generator), False

    def renew_and_mark(self, block: list[int], others: Samples | None = None) -> None:
        """Prepares the sets with these indices for a timed block of the candidate: changes their inputs, which it may
        have seen, and marks their outputs. `others` are inputs that `draw` returned before."""
        self.renew(block, others)
        self.mark(block)

    def look_at_last(self) -> None:
        """Notes whether the runner answered before its last call was finished; `left` then raises. That happens if code
        of a free-form candidate in the runner's process has replaced the functions that wait for the device."""
        self._unfinished = self._marks is not None and self._sets.marked_now(self._marks)

    def left(self) -> list[torch.Tensor]:
        """Returns a list with one boolean on the device: whether a mark in the outputs is unchanged, so that a call of
        the block did not write them. The list is empty if nothing was marked. Raises IncorrectOutput if the last call
        was not finished when the runner answered."""
        if self._unfinished:
            raise IncorrectOutput("cheating", "the last timed call was not finished when the runner answered")
        return [] if self._marks is None else [self._sets.marked(self._marks)]

    def require_written(self) -> None:
        """Raises IncorrectOutput unless every timed call has overwritten the marks in its outputs. Values are compared
        elsewhere, for a few of the calls."""
        require_written(self.left())

    def draw(self, count: int) -> Samples:
        """Returns inputs of the task with another seed, for up to `count` calls: as many as can be made in
        `sample_seconds`, but at least one. Only their integers are used, so each floating input is an empty tensor; the
        list is empty if the integers never vary."""
        samples: Samples = []
        until = time.monotonic() + self.sample_seconds
        while self.integers_vary and len(samples) < count and (time.monotonic() < until or not samples):
            samples.append([one.new_empty(0) if one.is_floating_point() else one for one in self._another()])
        return samples

    def _another(self) -> list[torch.Tensor]:
        return self._task.flatten(*self._task.inputs(0, fresh_seed()))

    def _vary_integers(self, tensors: list[torch.Tensor]) -> bool:
        if all(tensor.dtype.is_floating_point for tensor in tensors):
            return False
        try:
            others = self._another()
        except (TaskError, RuntimeError):
            return False
        pairs = list(zip(tensors, others, strict=True))
        return all(one.shape == other.shape for one, other in pairs) and not all(
            torch.equal(one, other) for one, other in pairs if not one.dtype.is_floating_point
        )


def require_written(left: list[torch.Tensor]) -> None:
    """Raises IncorrectOutput if a boolean in `left`, as `SetValues.left` returns them, is true."""
    if left and bool(torch.stack(left).any()):
        raise IncorrectOutput("cheating", "a timed call left its outputs as they were")
