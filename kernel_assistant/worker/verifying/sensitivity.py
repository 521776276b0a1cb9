"""Accepts a few wrong-looking elements where the module magnifies rounding: a logarithm of a value near zero, a
quotient of two sums that cancel. Another correct order of operations gives other values there; so does PyTorch for
slightly different inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ..process.worker_errors import TaskError

if TYPE_CHECKING:
    from ..opening.open_task import OpenTask

#: How often PyTorch is asked, and how many times as far as its farthest answer a right one may be.
TRIALS, TIMES = 4, 2.0


def moves_as_far(
    task: OpenTask,
    tensors: Sequence[torch.Tensor],
    position: int,
    got: torch.Tensor,
    want: torch.Tensor,
    indices: Sequence[int],
) -> bool:
    """Whether a candidate's values `got` are about as close to the float64 values `want` as PyTorch's are when each
    value of its inputs `tensors` is changed by one rounding. That is the backward error of a stable algorithm (Higham,
    Accuracy and Stability of Numerical Algorithms, 1.5). `got` and `want` are the elements of output number `position`
    at the flat `indices`."""
    index = torch.tensor(indices, device=got.device)
    wanted = want.double()
    farthest = torch.zeros_like(wanted)
    generator = torch.Generator(got.device).manual_seed(len(indices))
    try:
        for _ in range(TRIALS):
            rounded = [_rounded_otherwise(tensor, generator) for tensor in tensors]
            theirs = task.call(*task.unflatten(rounded))[position].reshape(-1)[index].double()
            farthest = torch.maximum(farthest, torch.nan_to_num((theirs - wanted).abs(), nan=0.0, posinf=0.0))
    except (TaskError, torch.OutOfMemoryError):
        return False
    return bool(((got.double() - wanted).abs() <= TIMES * farthest).all())


def _rounded_otherwise(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns the tensor with about a third of its values larger, and a third smaller, by one unit in the last place of
    the value or of the root mean square, whichever is larger. Returns a tensor of integers unchanged."""
    if not tensor.dtype.is_floating_point:
        return tensor
    steps = torch.randint(-1, 2, tensor.shape, generator=generator, device=tensor.device)
    usual = float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) / max(tensor.numel(), 1) ** 0.5
    size = tensor.abs().clamp_min(usual)
    return tensor + (torch.finfo(tensor.dtype).eps * size * steps).to(tensor.dtype)
