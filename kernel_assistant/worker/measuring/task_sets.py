"""Makes the sets of a task: copies of its inputs and outputs in shared memory, on which calls are timed. Decides how
many there are, and which values they may hold."""

from __future__ import annotations

from typing import Any

import torch

from ..device_lock import DeviceLock
from ..opening.open_task import OpenTask
from ..opening.task_checks import largest_value_bytes
from ..process.memory import available_bytes
from ..process.worker_errors import TaskError, with_inputs
from ..running.buffer_sets import BufferSets
from ..verifying.verification import ExpectedOutputs, all_finite, made_sets
from .passes import BLOCK_SECONDS as PASS_SECONDS
from .passes import Block
from .possible_times import PossibleTimes, tensor_bytes
from .set_values import SetValues
from .timed_outputs import TimedOutputs
from .timing import BLOCK_SECONDS as CUDA_SECONDS
from .timing import PlanSubject

#: A launch takes about 8 µs on CUDA, so that 512 calls fill a block; each set costs time when a candidate is bound.
MOST_SETS = {"cpu": 2048, "cuda": 512}
#: Share of the free memory that the sets may take, beyond what is needed to exceed the cache.
SHARE_OF_MEMORY = {"cpu": 0.05, "cuda": 0.25}
#: Values of the largest size that a call may hold at once, of the reference and of a candidate together.
VALUES_INSIDE = 4
LEAST_FOOTPRINT = 128 << 20
BLOCK_SECONDS = {"cpu": PASS_SECONDS, "cuda": CUDA_SECONDS}
QUICK_BLOCK_SECONDS = {"cpu": PASS_SECONDS, "cuda": 0.002}
#: Bytes that are written between new values and a pass on a CPU, so that none is in the nearest caches. All of the last
#: one would take 40 ms, and make the first block behind it 10% slower (docs/experiments.md, 125).
NEAR_BYTES = 16 << 20
#: Name of the declared inputs after their values have been changed and moved.
VARIED = "declared inputs with changed values"


class TaskSets:
    """Sets (copies of the inputs and outputs) of one task that together exceed the cache, so that each timed call finds
    its data in memory. `values` changes their inputs, and `outputs` compares their outputs. With `quick_only` there are
    only enough for the short blocks of calls of the quick tier; longer blocks use some sets twice."""

    def __init__(
        self,
        task: OpenTask,
        base: ExpectedOutputs,
        possible: PossibleTimes,
        target: str,
        lock: DeviceLock,
        *,
        quick_only: bool,
        numerics: str,
    ) -> None:
        self.task, self.target, self.lock = task, target, lock
        self.block_seconds = (QUICK_BLOCK_SECONDS if quick_only else BLOCK_SECONDS)[target]
        self.sets = self._make_sets(base, possible)
        try:
            self.values = self._values(base, possible.ceilings.cache_bytes)
        except BaseException:
            self.sets.close()
            raise
        self.outputs = TimedOutputs(task, self.sets, base, numerics)

    @property
    def footprint(self) -> int:
        """Returns the bytes of all sets together."""
        return self.sets.count * self.sets.bytes_per_set

    def calls(self) -> list[tuple[Any, Any]]:
        """Returns the arguments (args, kwargs) of a call of the module on each set."""
        return [self.task.unflatten(row) for row in self.sets.inputs]

    def prepare_pass(self, subject: PlanSubject, whole: Block, mine: Block) -> None:
        """Waits until the candidate's threads are idle, then puts new values into the input sets that the pass uses
        (`whole`), and marks into the outputs of the candidate's calls (`mine`)."""
        subject.rest()
        self.values.renew(self.sets.around(*whole))
        self.values.mark(self.sets.around(*mine))

    def close(self) -> None:
        self.sets.close()

    def _make_sets(self, base: ExpectedOutputs, possible: PossibleTimes) -> BufferSets:
        """Returns sets in shared memory for the sizes of `base`: enough to exceed the cache four times."""
        names = [f"out{index}" for index in range(len(base.reference))]
        count = self._count(tensor_bytes([*base.tensors, *base.reference]), possible)
        return made_sets(self.task.input_names, names, base, count)

    def _count(self, size: int, possible: PossibleTimes) -> int:
        """Returns the number of sets, of `size` bytes each, that together exceed the cache four times; or more, as far
        as memory allows, so that a block of calls uses none twice."""
        size = max(size, 1)
        beyond_cache = max(4 * possible.ceilings.cache_bytes, LEAST_FOOTPRINT) // size + 1
        a_block = int(self.block_seconds / possible.floor_seconds) if possible.floor_seconds else 0
        inside = largest_value_bytes(self.task.traced.program)
        room = room_for_sets(available_bytes(self.task.device), inside, self.target) // size
        return max(2, min(max(beyond_cache, min(a_block, room)), MOST_SETS[self.target]))

    def _values(self, base: ExpectedOutputs, cache_bytes: int) -> SetValues:
        """Fills the input sets with the declared inputs, varied as far as the module accepts that, and returns the
        object that gives them new values later. `base` has the declared inputs and eager mode's results; each change of
        values evicts the cache (`cache_bytes`)."""
        cache = 2 * cache_bytes
        leading = [_leads_with_free(self.task.graph, name) for name in self.task.input_names]
        evicted = min(cache, NEAR_BYTES) if self.target == "cpu" else cache
        values = SetValues(self.task, self.sets, leading, base.tensors, evicted)
        with self.lock.shared():
            self.sets.write_all(base.tensors)
            values.refresh()
            for given_up in ("by_element", "integers_move"):
                if self._accepts(self.sets.inputs[0], base.reference):
                    break
                setattr(self.sets, given_up, False)
                values.refresh()
        return values

    def _accepts(self, tensors: list[torch.Tensor], usual: list[torch.Tensor]) -> bool:
        """Whether the module runs on the varied inputs `tensors`, with finite outputs if its outputs on the declared
        inputs (`usual`) are finite. Some inputs have a structure, such as a matrix that has to stay positive definite,
        or offsets that have to rise."""
        if VARIED in self.task.avoid:
            return False
        try:
            with with_inputs(VARIED):
                outputs = self.task.call(*self.task.unflatten(tensors))
        except (TaskError, RuntimeError):
            return False
        return all_finite(list(outputs)) or not all_finite(usual)


def room_for_sets(available: int, largest: int, target: str) -> int:
    """Returns the bytes that the sets may take even if fewer would exceed the cache. `available` is the free memory,
    `largest` the size of the largest value inside the module, both in bytes: reference and candidate each hold several
    values of that size at a time."""
    return int(SHARE_OF_MEMORY[target] * max(available - VALUES_INSIDE * largest, 0))


def _leads_with_free(graph: dict[str, Any], name: str) -> bool:
    for value in graph["inputs"]:
        if value["name"] == name:
            shape = value["spec"]["shape"]
            return bool(shape) and not str(shape[0]).isdigit()
    return False
