"""Makes residual calls (PyTorch's own operators in a plan) on memory that keeps its addresses, so that CUDA graphs can
contain the calls: docs/launching.md.

Needs torch."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..launching import Entry, PreparedLaunch, Words
from .residual import PyTorchCall, tensors_at


def can_be_held(calls: Sequence[Any]) -> bool:
    """Whether CUDA graphs may contain these calls: they are operators of PyTorch itself, and this PyTorch can keep the
    memory that they allocate apart from all other memory."""
    return all(call.is_pytorchs for call in calls) and _has_pools()


@lru_cache(maxsize=1)
def _has_pools() -> bool:
    """Whether PyTorch has private memory pools (`torch.cuda.MemPool`, from 2.5 on) and can use them: its own caching
    allocator must be in place and switched on."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") or not hasattr(torch.cuda, "use_mem_pool"):
        return False
    try:
        torch.cuda.MemPool()
    except RuntimeError:
        return False
    return True


class CaptureSpace:
    """A memory pool and a stream for the captured calls of one plan, both made at first use. Nobody else may use the
    memory, since graphs write to it again at each launch. The stream is separate because workspaces of PyTorch's
    libraries belong to a stream, and graphs on two streams must not share one. Graphs with the same space run one after
    another."""

    def __init__(self, new_stream: Callable[[], int], end_stream: Callable[[int], None]) -> None:
        self._new_stream, self._end_stream = new_stream, end_stream
        self._made: tuple[Any, int] | None = None

    @property
    def pool_and_stream(self) -> tuple[Any, int]:
        """Returns a torch.cuda.MemPool, and the driver's handle of a stream."""
        if self._made is None:
            self._made = torch.cuda.MemPool(), self._new_stream()
            weakref.finalize(self, self._end_stream, self._made[1]).atexit = False
        return self._made


class HeldCalls:
    """The residual calls of a plan with `count` buffers, made on memory that keeps its addresses. `sizes` maps the
    index of each buffer that the calls read, if it has memory of its own, to its spec and (shape, strides, bytes).

    Each result is kept until its call runs again. While `fixed` is set, a new result is copied to the memory of the old
    one, since graphs contain that address. Captured calls run in `space`."""

    def __init__(
        self, calls: Sequence[Any], sizes: dict[int, Any], count: int, device: str, space: CaptureSpace
    ) -> None:
        self._calls: Sequence[PyTorchCall] = calls
        self._sizes, self._count, self._device = sizes, count, torch.device(device)
        self._read = [
            list(dict.fromkeys(value.buffer for value in call.reads if value.buffer in sizes)) for call in calls
        ]
        self._space = space
        self._kept: dict[int, torch.Tensor] = {}
        self._made = [False] * len(calls)
        self._known: list[tuple[tuple[int, ...], list[torch.Tensor]]] = [((), [])] * len(calls)
        self.fixed = False
        self._publish: Any = None

    def tell(self, publish: Callable[[int, int], None]) -> None:
        """Calls the function `publish(buffer, address)` from now on whenever a result gets another address; `buffer` is
        an index."""
        # The graph that has the method has these calls, too.
        self._publish = weakref.WeakMethod(publish)

    @property
    def ran(self) -> bool:
        """Whether all calls were made at least once. Before that they cannot be captured, because PyTorch loads and
        chooses kernels at first use."""
        return all(self._made)

    def steps(self) -> list[PreparedLaunch]:
        """Returns the calls in the form of launches (`PreparedLaunch`). Each reads the addresses of its operands from
        its argument words."""
        return [self._prepared(number) for number in range(len(self._calls))]

    def _prepared(self, number: int) -> PreparedLaunch:
        read = self._read[number]

        def enter(words: Words, stream: int) -> Entry:
            return self._run, (number, words, stream)

        return PreparedLaunch([0] * max(len(read), 1), list(enumerate(read)), enter)

    def _run(self, number: int, words: Words, stream: int) -> None:
        tensors: list[Any] = [None] * self._count
        for buffer, tensor in self._kept.items():
            tensors[buffer] = tensor
        for buffer, tensor in zip(self._read[number], self._operands(number, words), strict=True):
            tensors[buffer] = tensor
        for value in self._calls[number].results:
            tensors[value.buffer] = None
        current = torch.cuda.current_stream(self._device)
        with torch.inference_mode():
            if current.cuda_stream == stream:
                self._call(number, tensors)
            else:
                with torch.cuda.stream(_stream(stream, self._device)):
                    capturing = torch.cuda.is_current_stream_capturing()
                    (self._captured if capturing else self._call)(number, tensors)
        self._made[number] = True

    def _captured(self, number: int, tensors: list[Any]) -> None:
        pool, handle = self._space.pool_and_stream
        outer, own = torch.cuda.current_stream(self._device), _stream(handle, self._device)
        own.wait_stream(outer)
        with torch.cuda.stream(own), torch.cuda.use_mem_pool(pool, self._device):
            self._call(number, tensors)
        outer.wait_stream(own)

    def _call(self, number: int, tensors: list[Any]) -> None:
        call = self._calls[number]
        call.run(tensors, [0] * self._count)
        for value in call.results:
            self._keep(value.buffer, tensors[value.buffer])

    def _keep(self, buffer: int, result: torch.Tensor) -> None:
        before = self._kept.get(buffer)
        if self.fixed and before is not None:
            before.copy_(result)
            return
        self._kept[buffer] = result
        publish = self._publish() if self._publish is not None else None
        if publish is not None:
            publish(buffer, result.data_ptr())

    def _operands(self, number: int, words: Words) -> list[torch.Tensor]:
        """Returns the operands of call number `number`, as tensors over the addresses in `words`. They are made
        together, so that adjacent ones share a storage: cuDNN wants the weights of an LSTM in one piece."""
        read = self._read[number]
        addresses = tuple(words[: len(read)])
        if self._known[number][0] != addresses or not self._known[number][1]:
            held = [(address, *self._sizes[buffer]) for buffer, address in zip(read, addresses, strict=True)]
            self._known[number] = addresses, tensors_at(held, str(self._device)) if held else []
        return self._known[number][1]


def _stream(handle: int, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.ExternalStream(handle, device)  # type: ignore[no-untyped-call]
