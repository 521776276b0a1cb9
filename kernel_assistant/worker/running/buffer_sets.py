"""Sets of inputs and outputs in shared memory: one set for verifying, many for timing with a cold cache.

    read-only arena:  [parameters and buffers][inputs of set 0][inputs of set 1] …
    writable arena:   [outputs of set 0][outputs of set 1] …

Everything is aligned to 256 bytes and followed by a red zone, which must not be written. Timing walks through the sets,
so that each call gets values and addresses that are not in the last-level cache.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..applied.strided import copy_as_it_lies, writable
from ..runner.operations.kept_algorithms import checked, kept_file, write
from .arena import Arena, padded, span_bytes
from .runner_client import RunnerClient
from .storages import offsets

MAP_SECONDS = 60.0
MARK_BYTES = 4
#: Bytes that are rewritten at a time: small sets many at once, large ones one by one.
RUN_BYTES = 64 << 20

#: A table of factors has room for so many different positions of a tensor in it, for tensors of so many values, and
#: steps below this from one set to the next.
PLACES, MOST_FACTORS, MOST_STEP = 1 << 18, 1 << 24, 64

#: Outputs of a block's last call of which one word is read when the runner answers.
MOST_READ = 4


@dataclass(frozen=True)
class Marks:
    """A pattern that was written into outputs, to see later whether a candidate has overwritten it. `positions` are the
    indices of the 32-bit words in the writable arena, `pattern` is their value; `last` are the indices of the words in
    the outputs of the last of several timed calls.
    """

    positions: torch.Tensor
    pattern: int
    last: tuple[int, ...]


class BufferSets:
    """The sets in shared memory; a set is one copy of a workload's inputs and outputs. `inputs[k]` and `outputs[k]` are
    the lists of tensors of set k; all sets have the same sizes, those of `first` and `outputs`. `names`, `output_names`
    and `constants` (parameters and buffers) have the names that a plan uses."""

    def __init__(
        self,
        names: list[str],
        output_names: list[str],
        constants: dict[str, torch.Tensor],
        first: list[torch.Tensor],
        outputs: list[torch.Tensor],
        dims: dict[str, int],
        count: int,
        device: torch.device,
        prefix: str = "",
    ) -> None:
        self.dims, self.count = dims, count
        self._constant_names, self._names, self._output_names = list(constants), names, output_names
        constant_offsets, base = offsets(list(constants.values()))
        input_offsets, input_size = _layout(first)
        output_offsets, output_size = _layout(outputs)
        self.bytes_per_set = sum(map(span_bytes, first)) + sum(map(span_bytes, outputs))
        # A runner keeps arenas of other names mapped.
        readable, written_to = f"{prefix}inputs", f"{prefix}outputs"
        self.readable = Arena(readable, base + count * input_size, device, writable=False)
        try:
            self.writable = Arena(written_to, max(count * output_size, 1), device, writable=True)
        except BaseException:
            # Free the arena: nobody else can, and the next task may fit.
            self.readable.close()
            raise
        self._constants = [
            self.readable.view(offset, tensor)
            for offset, tensor in zip(constant_offsets, constants.values(), strict=True)
        ]
        self._locations: list[dict[str, list[Any]]] = []
        self._random = random.SystemRandom()
        self._base: list[torch.Tensor] = []
        self._factors: dict[torch.dtype, torch.Tensor] = {}
        self._seen: torch.Tensor | None = None
        #: Whether each value of a floating input may have a factor of its own, instead of one factor for each set.
        self.by_element = True
        #: Whether integers may change their positions: offsets and lengths often may not.
        self.integers_move = True
        rows = range(count)
        inputs = [
            self.readable.views([base + row * input_size + offset for row in rows], like)
            for offset, like in zip(input_offsets, first, strict=True)
        ]
        written = [
            self.writable.views([row * output_size + offset for row in rows], like)
            for offset, like in zip(output_offsets, outputs, strict=True)
        ]
        self.inputs: list[list[torch.Tensor]] = [[column[row] for column in inputs] for row in rows]
        self.outputs: list[list[torch.Tensor]] = [[column[row] for column in written] for row in rows]
        shared = {name: [readable, at] for name, at in zip(self._constant_names, constant_offsets, strict=True)}
        for index in rows:
            ins = [base + index * input_size + offset for offset in input_offsets]
            outs = [index * output_size + offset for offset in output_offsets]
            locations = {name: [readable, at] for name, at in zip(names, ins, strict=True)}
            locations |= {name: [written_to, at] for name, at in zip(output_names, outs, strict=True)}
            self._locations.append(locations | shared)
        self._stacks = [
            self._stacked(base + offset, input_size, writable(like))
            for offset, like in zip(input_offsets, first, strict=True)
        ]
        self._output_starts = [
            (offset // MARK_BYTES, span_bytes(like) // MARK_BYTES if _is_dense(like) else 0)
            for offset, like in zip(output_offsets, outputs, strict=True)
        ]
        self._output_step = output_size // MARK_BYTES
        self.write_constants(constants)

    def _stacked(self, offset: int, step: int, like: torch.Tensor) -> torch.Tensor:
        """Returns one input of all sets as a single tensor, whose first dimension is the index of the set: `offset` is
        its byte offset in set 0, `step` the bytes from set to set, and `like` has its dtype, shape and strides. If its
        elements share memory, `like` is that memory as a flat tensor."""
        span = (self.count - 1) * step + span_bytes(like)
        flat = self.readable.bytes[offset : offset + span].view(torch.uint8)
        flat = flat[: span // like.element_size() * like.element_size()].view(like.dtype)
        return flat.as_strided((self.count, *like.shape), (step // like.element_size(), *like.stride()))

    def rename_outputs(self, names: list[str]) -> None:
        """Renames the outputs to `names`, the names that the next plan gives them, in the same order."""
        for locations in self._locations:
            held = [locations.pop(name) for name in self._output_names]
            locations.update(zip(names, held, strict=True))
        self._output_names = names

    def write_constants(self, constants: dict[str, torch.Tensor]) -> None:
        """Copies the values of parameters and buffers, in the order of the constructor's `constants`, into the
        arena."""
        for view, value in zip(self._constants, constants.values(), strict=True):
            copy_as_it_lies(view, value)
        self._settle()

    def write(self, index: int, tensors: list[torch.Tensor]) -> None:
        """Copies the input values `tensors` into set number `index`."""
        for view, value in zip(self.inputs[index], tensors, strict=True):
            copy_as_it_lies(view, value)
        self._settle()

    def wipe(self) -> None:
        """Fills all inputs, outputs and the red zones after outputs with zeros, as in new memory."""
        for stack in self._stacks:
            stack.zero_()
        self.poison(0)

    def write_all(self, tensors: list[torch.Tensor]) -> None:
        """Copies the same input values into every set. `refresh` and `change` compute new values from `tensors` later,
        so the caller must not change `tensors`."""
        self._base = [writable(tensor) for tensor in tensors]
        for stack, value in zip(self._stacks, self._base, strict=True):
            stack.copy_(value)
        self._settle()

    def poison(self, byte: int) -> None:
        """Fills all outputs and the red zones after them (memory that nobody may write) with `byte`, so that elements
        that a candidate does not write can be found."""
        self.writable.bytes.fill_(byte)
        self._settle()

    def stray_write(self, byte: int) -> bool:
        """Whether memory between the outputs (a red zone) was written since `poison(byte)`."""
        edges = sorted(
            (view.storage_offset() * view.element_size(), span_bytes(view)) for row in self.outputs for view in row
        )
        end, zones = 0, list[torch.Tensor]()
        for offset, size in edges:
            zones.append((self.writable.bytes[end:offset] != byte).any())
            end = int(offset) + size
        zones.append((self.writable.bytes[end:] != byte).any())
        return bool(torch.stack(zones).any())

    def refresh(self, generator: torch.Generator, free: list[bool], first: int) -> None:
        """Writes new values, as `change` does, into the inputs of every set, beginning at set `first`."""
        self.change([*range(first, self.count), *range(first)], generator, free)

    def change(
        self,
        indices: list[int],
        generator: torch.Generator,
        free: list[bool],
        samples: Sequence[list[torch.Tensor]] = (),
    ) -> None:
        """Writes new values into the inputs of the sets `indices`: the values of `write_all`, moved within each tensor.
        `free` says for each input whether its leading dimension has a symbolic size, as a batch has.

        A tensor whose leading dimension is free is rolled along that dimension, so that samples of a batch stay whole.
        Other floating tensors, and tensors whose elements share memory, are rolled as flat data. Each floating value is
        multiplied by a factor of its own: with one factor for a whole set, a candidate could scale the results that it
        remembers of a linear function. Integers keep their values, because they may be indices; they come from
        `samples`, other inputs of the task, if there are some, and change positions if `integers_move`.
        """
        shift = int(torch.randint(1, 1 << 20, (1,), generator=generator))
        for position, leading in enumerate(free):
            base, target = self._base[position], self._stacks[position]
            leading = leading and target.shape[1:] == self.inputs[0][position].shape
            if base.dtype.is_floating_point:
                self._vary(indices, position, _moved(base, shift, leading))
                continue
            for number, index in enumerate(indices):
                value = writable(samples[number % len(samples)][position]) if samples else base
                target[index].copy_(_moved(value, shift + number, leading) if self.integers_move else value)
        self._settle()

    def _vary(self, indices: list[int], position: int, values: torch.Tensor) -> None:
        """Writes `values` into input number `position` of the sets `indices`; each value is multiplied by a random
        factor between 0.75 and 1."""
        stack = self._stacks[position]
        most = max(1, RUN_BYTES // max(self.bytes_per_set, 1))
        for start in range(0, len(indices), most):
            some = indices[start : start + most]
            factors = self._factors_of(values, len(some))
            if some[-1] - some[0] == len(some) - 1:
                torch.mul(values, factors, out=stack[some[0] : some[-1] + 1])
            else:
                stack[some] = values * factors

    def _factors_of(self, values: torch.Tensor, count: int) -> torch.Tensor:
        """Returns factors between 0.75 and 1 for `values` in each of `count` sets, with the index of the set as first
        dimension, as a view of a table of random numbers. The view begins at a random index, and its steps from row to
        row and from set to set are random, so that two sets hardly ever have the same factor at the same position."""
        sizes, steps, reach = (count, *values.shape), list[int](), 0
        if not self.by_element:
            sizes = (count, *(1 for _ in values.shape))
        within = 1
        for number, size in reversed(list(enumerate(sizes))):
            dense = number > 0 and (within * size <= MOST_FACTORS or number == len(sizes) - 1)
            steps.insert(0, within if dense else self._random.randrange(1, MOST_STEP))
            within *= size if dense else 1
            reach += max(size - 1, 0) * steps[0]
        needed = reach + 1 + PLACES
        table = self._factors.get(values.dtype)
        if table is None or len(table) < needed:
            generator = torch.Generator(values.device).manual_seed(self._random.randrange(1 << 31))
            table = 0.75 + 0.25 * torch.rand(needed, generator=generator, device=values.device)
            table = self._factors[values.dtype] = table.to(values.dtype)
        return table.as_strided(sizes, steps, self._random.randrange(PLACES))

    def _settle(self) -> None:
        """Waits until all writes to the arenas are complete, because the runner that reads them is another process, and
        no stream synchronizes it with this one."""
        if self.writable.bytes.is_cuda:
            torch.cuda.synchronize(self.writable.bytes.device)

    def mark(self, indices: list[int], generator: torch.Generator) -> Marks:
        """Writes a random pattern at a random position in every dense output of the sets `indices`. Returns the
        positions and the pattern, for `marked` and `marked_now`."""
        sets = torch.tensor(indices, dtype=torch.int64)
        spots = [
            start + sets * self._output_step + torch.randint(words, (len(indices),), generator=generator)
            for start, words in self._output_starts
            if words
        ]
        positions = torch.cat([torch.empty(0, dtype=torch.int64), *spots]).to(self.writable.bytes.device)
        pattern = int(torch.randint(1 << 30, (1,), generator=generator))
        self._words()[positions] = pattern
        self._settle()
        return Marks(positions, pattern, tuple(int(spot[-1]) for spot in spots[:MOST_READ]) if indices else ())

    def marked(self, marks: Marks) -> torch.Tensor:
        """Returns a boolean tensor on the device: true if a pattern that `mark` wrote was not overwritten at one of its
        positions."""
        return (self._words()[marks.positions] == marks.pattern).any()

    def around(self, first: int, count: int) -> list[int]:
        """Returns the indices of `count` consecutive sets that begin with set `first`; set 0 follows the last set."""
        return [(first + step) % self.count for step in range(count)]

    def marked_now(self, marks: Marks) -> bool:
        """Whether the pattern in the last call's outputs is not overwritten yet at one of its positions. On CUDA a copy
        engine reads the words, while kernels of another process run: a kernel of this process would have to wait for
        those kernels.
        """
        words = self._words()
        if not words.is_cuda:
            return bool((words[list(marks.last)] == marks.pattern).any())
        if self._seen is None:
            self._stream = torch.cuda.Stream(words.device)  # type: ignore[no-untyped-call]
            self._seen = torch.empty(MOST_READ, dtype=torch.int32, pin_memory=True)
        with torch.cuda.stream(self._stream):
            for number, at in enumerate(marks.last):
                self._seen[number : number + 1].copy_(words[at : at + 1], non_blocking=True)
        self._stream.synchronize()
        return bool((self._seen[: len(marks.last)] == marks.pattern).any())

    def _words(self) -> torch.Tensor:
        whole = self.writable.bytes
        return whole[: whole.numel() // MARK_BYTES * MARK_BYTES].view(torch.int32)

    def bind(self, runner: RunnerClient, quick: bool = False, keep: bool = False) -> dict[str, Any]:
        """Maps both arenas into the runner, unless they are mapped already, and binds all sets there: the runner's call
        number k then uses set k. Returns the runner's answer. With `keep`, the algorithms of libraries that the runner
        chose are kept on disk; no code of the candidate may run in its process then. With `quick`, it chooses among a
        few algorithms only."""
        for arena in (self.readable, self.writable):
            if runner.mapped.get(arena.name) is arena:
                continue
            message = {"op": "map", "arena": arena.name, "bytes": arena.size, "writable": arena.writable}
            runner.request(message, MAP_SECONDS, (arena.descriptor,))
            runner.mapped[arena.name] = arena
        sets = [{"dims": self.dims, "tensors": locations} for locations in self._locations]
        answer = runner.request({"op": "bind", "sets": sets, "quick": quick}, MAP_SECONDS)
        if keep:
            write(kept_file(), checked(answer.get("chosen")))
        return answer

    def close(self) -> None:
        self.inputs, self.outputs, self._constants, self._stacks = [], [], [], []
        self.readable.close()
        self.writable.close()


def _layout(tensors: list[torch.Tensor]) -> tuple[list[int], int]:
    begins, end = [], 0
    for tensor in tensors:
        begins.append(end)
        end += padded(span_bytes(tensor))
    return begins, end


def _is_dense(tensor: torch.Tensor) -> bool:
    return span_bytes(tensor) == tensor.numel() * tensor.element_size()


def _moved(value: torch.Tensor, shift: int, leading: bool) -> torch.Tensor:
    """Returns the tensor rolled along its leading dimension if `leading` is set, otherwise rolled as flat data if it is
    floating; `shift` determines how far. Other tensors, and those with a single row or element, are returned
    unchanged."""
    if leading and value.dim() and value.shape[0] > 1:
        return value.roll(1 + shift % (value.shape[0] - 1), 0)
    if value.dtype.is_floating_point and value.numel() > 1:
        return value.flatten().roll(1 + shift % (value.numel() - 1)).reshape(value.shape)
    return value
