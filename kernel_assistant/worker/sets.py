"""Sets of inputs and outputs in shared memory: one set for verifying, many for timing with a cold cache.

    read-only arena:  [parameters and buffers][inputs of set 0][inputs of set 1] …
    writable arena:   [outputs of set 0][outputs of set 1] …

Everything is aligned to 256 bytes with a red zone behind it. Timing walks through the sets, so that each call finds
values and addresses that the last-level cache does not hold.
"""

from __future__ import annotations

from typing import Any

import torch

from .arena import Arena, padded, span_bytes
from .runner_client import RunnerClient

MAP_SECONDS = 60.0
MARK_BYTES = 4

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
        self.writable = Arena("outputs", max(count * output_size, 1), device, writable=True)
        self._constants = [
            self.readable.view(offset, tensor)
            for offset, tensor in zip(constant_offsets, constants.values(), strict=True)
        ]
        self._places: list[dict[str, list[Any]]] = []
        self._scales = [[1.0] * len(first) for _ in range(count)]
        self.inputs: list[list[torch.Tensor]] = []
        self.outputs: list[list[torch.Tensor]] = []
        shared = {name: ["inputs", at] for name, at in zip(self._constant_names, constant_offsets, strict=True)}
        for index in range(count):
            ins = [base + index * input_size + offset for offset in input_offsets]
            outs = [index * output_size + offset for offset in output_offsets]
            self.inputs.append([self.readable.view(at, like) for at, like in zip(ins, first, strict=True)])
            self.outputs.append([self.writable.view(at, like) for at, like in zip(outs, outputs, strict=True)])
            places = {name: ["inputs", at] for name, at in zip(names, ins, strict=True)}
            places |= {name: ["outputs", at] for name, at in zip(output_names, outs, strict=True)}
            self._places.append(places | shared)
        self.write_constants(constants)

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
        self._scales[index] = [1.0] * len(tensors)
        for view, value in zip(self.inputs[index], tensors, strict=True):
            view.copy_(value)
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
            held, held_scale = self.inputs[first][position].clone(), self._scales[first][position]
            for target, source in zip(order, [*order[1:], None], strict=True):
                value, scale = held, held_scale
                if source is not None:
                    value, scale = self.inputs[source][position], self._scales[source][position]
                self._put(target, position, _moved(value, shift, leading), scale, generator)
        self._settle()

    def change(self, indices: list[int], generator: torch.Generator, free: list[bool]) -> None:
        """New values in some of the sets, each from what it held."""
        shift = int(torch.randint(1, 1 << 20, (1,), generator=generator))
        for index in indices:
            for position, leading in enumerate(free):
                value = _moved(self.inputs[index][position], shift, leading)
                self._put(index, position, value, self._scales[index][position], generator)
        self._settle()

    def _settle(self) -> None:
        """Wait until what was written is there: the reader is another process, which no stream orders after us."""
        if self.writable.bytes.is_cuda:
            torch.cuda.synchronize(self.writable.bytes.device)

    def _put(self, index: int, position: int, value: torch.Tensor, scale: float, generator: torch.Generator) -> None:
        """Write `value`, which carries `scale`, with a new scale between 0.75 and 1."""
        if value.dtype.is_floating_point:
            fresh = 0.75 + 0.25 * float(torch.rand(1, generator=generator))
            value, scale = value * (fresh / scale), fresh
        self.inputs[index][position].copy_(value)
        self._scales[index][position] = scale

    def mark(self, indices: list[int], generator: torch.Generator) -> Marks:
        """Write a pattern at a place nobody knows in every dense output of some sets."""
        spots = []
        for index in indices:
            for view in self.outputs[index]:
                size = span_bytes(view)
                if size >= MARK_BYTES and size == view.numel() * view.element_size():
                    room = int(torch.randint(size // MARK_BYTES, (1,), generator=generator))
                    spots.append(view.storage_offset() * view.element_size() // MARK_BYTES + room)
        places = torch.tensor(spots, dtype=torch.int64, device=self.writable.bytes.device)
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
        self.inputs, self.outputs, self._constants = [], [], []
        self.readable.close()
        self.writable.close()


def _layout(tensors: list[torch.Tensor], start: int) -> tuple[list[int], int]:
    offsets, end = [], start
    for tensor in tensors:
        offsets.append(end)
        end += padded(span_bytes(tensor))
    return offsets, end


def _moved(source: torch.Tensor, shift: int, leading: bool) -> torch.Tensor:
    if leading and source.shape[0] > 1:
        return source.roll(1 + shift % (source.shape[0] - 1), 0)
    if source.dtype.is_floating_point and source.numel() > 1:
        return source.roll(1 + shift % (source.numel() - 1))
    return source
