"""Residual calls of one caller whose memory stays where it is, so that CUDA graphs can contain them: docs/launching.md.

Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from ..launching import Entry, PreparedLaunch, Words
from .residual import Held, PyTorchCall, tensors_at


def can_be_held(calls: Sequence[Any]) -> bool:
    """Whether CUDA graphs may contain these calls: operators of PyTorch itself, and this PyTorch (2.5 and newer) keeps
    what they allocate apart from all other memory."""
    pools = hasattr(torch.cuda, "MemPool") and hasattr(torch.cuda, "use_mem_pool")
    return pools and all(call.is_pytorchs for call in calls)


class HeldCalls:
    """The calls of a plan of `count` buffers. `sizes` has spec and sizes of the buffers that they read and that have
    memory of their own.

    What a call allocates is in a pool that nobody else uses: a graph that contains the call uses it again. Results stay
    where they were made last; while they are `fixed`, where they were made before, since graphs know their addresses.
    """

    def __init__(self, calls: Sequence[Any], sizes: dict[int, Any], count: int, device: str) -> None:
        self._sizes, self._count, self._device = sizes, count, torch.device(device)
        self._pool = torch.cuda.MemPool()
        self._kept: dict[int, torch.Tensor] = {}
        self._known: dict[tuple[int, int], torch.Tensor] = {}
        self._made: list[bool] = []
        self.fixed = False
        self.publish: Callable[[int, int], None] = lambda buffer, address: None
        self.steps = [self._prepared(call) for call in calls]

    @property
    def ran(self) -> bool:
        """Whether all calls were made once: what PyTorch loads or chooses at first use cannot be captured."""
        return all(self._made)

    def _prepared(self, call: PyTorchCall) -> PreparedLaunch:
        read = list(dict.fromkeys(value.buffer for value in call.reads if value.buffer in self._sizes))
        number = len(self._made)
        self._made.append(False)

        def run(words: Words, stream: int) -> None:
            self._run(call, dict(zip(read, words, strict=False)), stream)
            self._made[number] = True

        def enter(words: Words, stream: int) -> Entry:
            return run, (words, stream)

        return PreparedLaunch([0] * max(len(read), 1), list(enumerate(read)), enter)

    def _run(self, call: PyTorchCall, addresses: dict[int, int], stream: int) -> None:
        tensors: list[Any] = [None] * self._count
        for buffer, tensor in self._kept.items():
            tensors[buffer] = tensor
        for buffer, address in addresses.items():
            tensors[buffer] = self._tensor(buffer, address)
        for value in call.results:
            tensors[value.buffer] = None
        with ExitStack() as inside:
            if torch.cuda.current_stream(self._device).cuda_stream != stream:
                inside.enter_context(torch.cuda.stream(_stream(stream, self._device)))
            inside.enter_context(torch.cuda.use_mem_pool(self._pool, self._device))
            call.run(tensors, [0] * self._count)
            for value in call.results:
                self._keep(value.buffer, tensors[value.buffer])

    def _keep(self, buffer: int, result: torch.Tensor) -> None:
        before = self._kept.get(buffer)
        if self.fixed and before is not None:
            before.copy_(result)
            return
        self._kept[buffer] = result
        self.publish(buffer, result.data_ptr())

    def _tensor(self, buffer: int, address: int) -> torch.Tensor:
        if (buffer, address) not in self._known:
            if len(self._known) > 4 * self._count:
                self._known.clear()
            spec, sizes = self._sizes[buffer]
            held: Held = (address, spec, sizes)
            (self._known[buffer, address],) = tensors_at([held], str(self._device))
        return self._known[buffer, address]


def _stream(handle: int, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.ExternalStream(handle, device)  # type: ignore[no-untyped-call]
