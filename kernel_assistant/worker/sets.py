"""Sets of inputs and outputs in shared memory: one set for verifying, many for timing with a cold cache.

    read-only arena:  [parameters and buffers][inputs of set 0][inputs of set 1] …
    writable arena:   [outputs of set 0][outputs of set 1] …

Everything is aligned to 256 bytes with a red zone behind it. Timing walks through the sets, so that each call finds
values and addresses that the last-level cache does not hold.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from .arena import Arena, padded, span_bytes
from .runner_client import RunnerClient

MAP_SECONDS = 60.0
MARK_BYTES = 4
#: Sets are rewritten this much at a time: in few operations where they are small, one by one where they are large.
RUN_BYTES = 64 << 20

#: Places (32-bit words of the writable arena) and the pattern that was written there.
Marks = tuple[torch.Tensor, int]


class Sets:
    """`inputs[k]` and `outputs[k]` are lists of tensors over shared memory; all sets have the same sizes."""

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
    ) -> None:
        self.dims, self.count = dims, count
        self._constant_names, self._names, self._output_names = list(constants), names, output_names
        constant_offsets, base = _layout(list(constants.values()), 0)
        input_offsets, input_size = _layout(first, 0)
        output_offsets, output_size = _layout(outputs, 0)
        self.bytes_per_set = sum(map(span_bytes, first)) + sum(map(span_bytes, outputs))
        self.readable = Arena("inputs", base + count * input_size, device, writable=False)
        try:
            self.writable = Arena("outputs", max(count * output_size, 1), device, writable=True)
        except BaseException:
            # Nobody else can give it back, and the next task may have room.
            self.readable.close()
            raise
        self._constants = [
            self.readable.view(offset, tensor)
            for offset, tensor in zip(constant_offsets, constants.values(), strict=True)
        ]
        self._places: list[dict[str, list[Any]]] = []
        # On the device, as is what draws them: a value that crosses over waits for all that was asked of the device.
        self._scales = torch.ones(len(first), count, device=self.readable.bytes.device)
        self._random = torch.Generator(self._scales.device).manual_seed(random.SystemRandom().randrange(1 << 31))
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
        shared = {name: ["inputs", at] for name, at in zip(self._constant_names, constant_offsets, strict=True)}
        for index in rows:
            ins = [base + index * input_size + offset for offset in input_offsets]
            outs = [index * output_size + offset for offset in output_offsets]
            places = {name: ["inputs", at] for name, at in zip(names, ins, strict=True)}
            places |= {name: ["outputs", at] for name, at in zip(output_names, outs, strict=True)}
            self._places.append(places | shared)
        self._stacks = [
            self._stacked(base + offset, input_size, like) for offset, like in zip(input_offsets, first, strict=True)
        ]
        self._output_starts = [
            (offset // MARK_BYTES, span_bytes(like) // MARK_BYTES if _is_dense(like) else 0)
            for offset, like in zip(output_offsets, outputs, strict=True)
        ]
        self._output_step = output_size // MARK_BYTES
        self.write_constants(constants)

    def _stacked(self, offset: int, step: int, like: torch.Tensor) -> torch.Tensor:
        """One input of all sets as a single tensor, the set being its first dimension."""
        span = (self.count - 1) * step + span_bytes(like)
        flat = self.readable.bytes[offset : offset + span].view(torch.uint8)
        flat = flat[: span // like.element_size() * like.element_size()].view(like.dtype)
        return flat.as_strided((self.count, *like.shape), (step // like.element_size(), *like.stride()))

    def rename_outputs(self, names: list[str]) -> None:
        """Call the outputs as a plan does."""
        for places in self._places:
            held = [places.pop(name) for name in self._output_names]
            places.update(zip(names, held, strict=True))
        self._output_names = names

    def write_constants(self, constants: dict[str, torch.Tensor]) -> None:
        """Copy parameter and buffer values into the arena."""
        for view, value in zip(self._constants, constants.values(), strict=True):
            view.copy_(value)
        self._settle()

    def write(self, index: int, tensors: list[torch.Tensor]) -> None:
        """Copy input values into one set."""
        self._scales[:, index] = 1.0
        for view, value in zip(self.inputs[index], tensors, strict=True):
            view.copy_(value)
        self._settle()

    def write_all(self, tensors: list[torch.Tensor]) -> None:
        """Copy the same input values into every set."""
        self._scales.fill_(1.0)
        for stack, value in zip(self._stacks, tensors, strict=True):
            stack.copy_(value)
        self._settle()

    def poison(self, byte: int) -> None:
        """Fill all outputs and red zones, so that an element that is not written is seen."""
        self.writable.bytes.fill_(byte)
        self._settle()

    def stray_write(self, byte: int) -> bool:
        """Whether a red zone of the writable arena was written since `poison(byte)`."""
        edges = sorted(
            (view.storage_offset() * view.element_size(), span_bytes(view)) for row in self.outputs for view in row
        )
        end = 0
        for offset, size in edges:
            if bool((self.writable.bytes[end:offset] != byte).any()):
                return True
            end = int(offset) + size
        return bool((self.writable.bytes[end:] != byte).any())

    def refresh(self, generator: torch.Generator, free: list[bool], first: int) -> None:
        """New values at every address, beginning at set `first`: sets trade places, values move within the tensors.

        Tensors with a free leading dimension roll along it (integer inputs stay valid, samples stay whole); other
        floating tensors roll as flat data; floating ones are scaled by a factor of their own, so that no row of them
        has been seen before; integers trade places only.
        """
        shift = int(torch.randint(1, 1 << 20, (1,), generator=generator))
        order = [*range(first, self.count), *range(first)]
        for position, leading in enumerate(free):
            held, held_scale = self.inputs[first][position].clone(), self._scales[position, first].clone()
            for start, end in self._runs(order):
                # The last set of the ring takes the values that the first one had.
                source = order[start + 1 : end + 1]
                values, scales = _pick(self._stacks[position], source), _pick(self._scales[position], source)
                if end == self.count:
                    values = torch.cat([values, held[None]]) if source else held[None]
                    scales = torch.cat([scales, held_scale[None]])
                self._put(order[start:end], position, _moved(values, shift, leading), scales)
        self._settle()

    def change(self, indices: list[int], generator: torch.Generator, free: list[bool]) -> None:
        """New values in some of the sets: from sets that stay as they are, if there are enough, else from their own."""
        shift = int(torch.randint(1, 1 << 20, (1,), generator=generator))
        sources = [(index + len(indices)) % self.count for index in indices]
        apart = not set(sources) & set(indices)
        for position, leading in enumerate(free):
            stack, scales = self._stacks[position], self._scales[position]
            for start, end in self._runs(indices):
                some, given = indices[start:end], (sources if apart else indices)[start:end]
                if apart and _in_a_row(some) and _in_a_row(given) and stack.dtype.is_floating_point:
                    fresh = self._fresh(len(some))
                    factors = fresh / _pick(scales, given)
                    if _move_into(_pick(stack, some), _pick(stack, given), factors, shift, leading):
                        _pick(scales, some).copy_(fresh)
                        continue
                self._put(some, position, _moved(_pick(stack, given), shift, leading), _pick(scales, given))
        self._settle()

    def _fresh(self, count: int) -> torch.Tensor:
        """New scales, between 0.75 and 1."""
        return 0.75 + 0.25 * torch.rand(count, generator=self._random, device=self._random.device)

    def _runs(self, indices: list[int]) -> list[tuple[int, int]]:
        """`indices` cut into runs that are written at once, of about `RUN_BYTES`."""
        most = max(1, RUN_BYTES // max(self.bytes_per_set, 1))
        return [(start, min(start + most, len(indices))) for start in range(0, len(indices), most)]

    def _put(self, indices: list[int], position: int, values: torch.Tensor, scales: torch.Tensor) -> None:
        """Write a stack of values, which carry `scales` and share no memory, with new scales between 0.75 and 1."""
        stack, held = self._stacks[position], self._scales[position]
        if not values.dtype.is_floating_point:
            fresh = scales.clone()
        else:
            fresh = self._fresh(len(indices))
            factors = (fresh / scales).to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))
            if _in_a_row(indices):
                torch.mul(values, factors, out=_pick(stack, indices))
                _pick(held, indices).copy_(fresh)
                return
            values = values * factors
        stack[indices], held[indices] = values, fresh

    def _settle(self) -> None:
        """Wait until what was written is there: the reader is another process, which no stream orders after us."""
        if self.writable.bytes.is_cuda:
            torch.cuda.synchronize(self.writable.bytes.device)

    def mark(self, indices: list[int], generator: torch.Generator) -> Marks:
        """Write a pattern at a place nobody knows in every dense output of some sets."""
        sets = torch.tensor(indices, dtype=torch.int64)
        spots = [
            start + sets * self._output_step + torch.randint(words, (len(indices),), generator=generator)
            for start, words in self._output_starts
            if words
        ]
        places = torch.cat([torch.empty(0, dtype=torch.int64), *spots]).to(self.writable.bytes.device)
        pattern = int(torch.randint(1 << 30, (1,), generator=generator))
        self._words()[places] = pattern
        self._settle()
        return places, pattern

    def marked(self, marks: Marks) -> bool:
        """Whether a pattern of `mark` is still where it was."""
        places, pattern = marks
        return bool((self._words()[places] == pattern).any())

    def _words(self) -> torch.Tensor:
        whole = self.writable.bytes
        return whole[: whole.numel() // MARK_BYTES * MARK_BYTES].view(torch.int32)

    def bind(self, runner: RunnerClient) -> dict[str, Any]:
        """Map both arenas into the runner and bind all sets."""
        for arena in (self.readable, self.writable):
            message = {"op": "map", "arena": arena.name, "bytes": arena.size, "writable": arena.writable}
            runner.request(message, MAP_SECONDS, (arena.descriptor,))
        sets = [{"dims": self.dims, "tensors": places} for places in self._places]
        return runner.request({"op": "bind", "sets": sets}, MAP_SECONDS)

    def close(self) -> None:
        self.inputs, self.outputs, self._constants, self._stacks = [], [], [], []
        self.readable.close()
        self.writable.close()


def _layout(tensors: list[torch.Tensor], start: int) -> tuple[list[int], int]:
    offsets, end = [], start
    for tensor in tensors:
        offsets.append(end)
        end += padded(span_bytes(tensor))
    return offsets, end


def _pick(stack: torch.Tensor, indices: list[int]) -> torch.Tensor:
    """Some entries of a stack: a view where they follow one another, else a copy."""
    return stack[indices[0] : indices[-1] + 1] if _in_a_row(indices) else stack[indices]


def _in_a_row(indices: list[int]) -> bool:
    """Whether `indices`, which never repeat and go around a ring, follow one another."""
    return bool(indices) and indices[-1] - indices[0] == len(indices) - 1


def _is_dense(tensor: torch.Tensor) -> bool:
    return span_bytes(tensor) == tensor.numel() * tensor.element_size()


def _move_into(target: torch.Tensor, source: torch.Tensor, factors: torch.Tensor, shift: int, leading: bool) -> bool:
    """What `_moved` gives, scaled and written to `target`, which shares no memory with `source`: half the traffic.
    False, with nothing done, where the layout does not permit it."""
    if not (leading and source.shape[1] > 1):
        if source.dim() < 2 or not source[0].is_contiguous():
            return False
        target, source = target.flatten(1), source.flatten(1)
    length = source.shape[1]
    if length < 2:
        return False
    at = 1 + shift % (length - 1)
    scale = factors.to(source.dtype).reshape(-1, *[1] * (source.dim() - 1))
    torch.mul(source[:, : length - at], scale, out=target[:, at:])
    torch.mul(source[:, length - at :], scale, out=target[:, :at])
    return True


def _moved(stack: torch.Tensor, shift: int, leading: bool) -> torch.Tensor:
    """A copy of a stack, each entry rolled along its own leading dimension, or as flat data."""
    if leading and stack.shape[1] > 1:
        return stack.roll(1 + shift % (stack.shape[1] - 1), 1)
    flat = stack.flatten(1) if stack.dim() > 1 else stack[:, None]
    if stack.dtype.is_floating_point and flat.shape[1] > 1:
        return flat.roll(1 + shift % (flat.shape[1] - 1), 1).reshape(stack.shape)
    return stack.clone()
