"""The processes of a run: a single process, or the processes of `accelerate launch`, of which the first controls the
others.

Control messages use gloo, where waiting takes no resources: the other processes wait for minutes, and waiting in an
NCCL kernel would keep their GPUs busy while candidates are measured on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from kernel_assistant.errors import InternalError, MissingError

T = TypeVar("T")
#: Number of gradient elements that are summed at once.
_BUCKET = 1 << 26
#: Time limits: for the other processes while the first plays, and for all during an update.
_LONG, _SHORT = timedelta(days=1), timedelta(minutes=30)
_END = "end"


class ProcessGroup:
    """The processes of a run, as one of them knows them: `rank` is the number of this process, `count` the number of
    processes. `begin` detects whether this process was launched with others."""

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.count = rank, count
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._control: Any = dist.new_group(backend="gloo", timeout=_LONG) if count > 1 else None

    @classmethod
    def begin(cls) -> ProcessGroup:
        """Returns the group to which this process belongs. Raises MissingError if there are several processes and
        accelerate is not installed."""
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return cls()
        try:
            from accelerate import PartialState
        except ImportError as error:
            raise MissingError("accelerate is not installed", "pip install 'kernel-assistant[train]'") from error
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=_SHORT)
        return cls(state.process_index, state.num_processes, state.device)

    @property
    def main(self) -> bool:
        return self.rank == 0

    def tell(self, what: str, *arguments: Any) -> None:
        """Sends a command with its arguments to the other processes; does nothing in these. The caller must run the
        same command in the first process right afterwards.
        """
        if self.main:
            self.share((what, arguments))

    def follow(self, doing: Mapping[str, Callable[..., object]]) -> None:
        """Runs the commands that the first process sends, until it sends the end. For the other processes. `doing` has
        the function for each command. Raises InternalError if the first process is gone.
        """
        while True:
            try:
                command: Any = self.share(None)
            except RuntimeError as error:
                raise InternalError("the first process is gone", "see what it said; start all again") from error
            what, arguments = command
            if what == _END:
                return
            doing[what](*arguments)

    def end(self) -> None:
        """Makes the other processes leave `follow`."""
        self.tell(_END)

    def close(self) -> None:
        """Leaves the group, after waiting for all processes. Without this, a process may die with "terminate called
        without an active exception" if a gloo thread still talks to a process that has ended."""
        if self.count > 1:
            dist.barrier(group=self._control)
            self._control = None
            dist.destroy_process_group()

    def share(self, value: T) -> T:
        """Sends the first process's value to all processes and returns that value in each of them."""
        if self.count == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, group=self._control)
        return held[0]

    def every(self, value: T) -> list[T]:
        """Returns the values that all processes passed, by rank."""
        if self.count == 1:
            return [value]
        held: list[Any] = [None] * self.count
        dist.all_gather_object(held, value, group=self._control)
        return held

    def summed(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Returns for each name the sum of its numbers over all processes; a missing name counts as 0."""
        everybody = self.every(dict(numbers))
        names = dict.fromkeys(name for one in everybody for name in one)
        return {name: sum(one.get(name, 0.0) for one in everybody) for name in names}

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replaces each gradient by its sum over all processes; a missing gradient counts as 0."""
        if self.count == 1:
            return
        for one in parameters:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        bucket: list[Tensor] = []
        for one in parameters:
            assert one.grad is not None
            bucket.append(one.grad)
            if sum(grad.numel() for grad in bucket) >= _BUCKET:
                _sum(bucket)
                bucket = []
        if bucket:
            _sum(bucket)


def _sum(grads: Sequence[Tensor]) -> None:
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat)
    for grad, part in zip(grads, torch.split(flat, [grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))
