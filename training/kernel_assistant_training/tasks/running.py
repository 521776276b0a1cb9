"""Holds a candidate while the probe judges it: the module, its inputs, its outputs and its time in eager PyTorch."""

from __future__ import annotations

import math
import time
import warnings
from random import Random
from statistics import median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernel_assistant_training.tasks.candidates.writing import batch_of, with_batch
from kernel_assistant_training.tasks.records import Reason

#: Most changes of the batch size to reach the window.
FITS = 6
CALLS = 5
#: The target time is at most this many times the lower end of the window.
SPAN = 12.0


class Rejected(Exception):
    """Raised if the candidate (the source of a proposed task) is left out, for `reason`."""

    def __init__(self, reason: Reason, message: str = "") -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Running:
    """The module of a candidate's source, built on a device. Raises Rejected with the reason broken or memory if
    building fails."""

    def __init__(self, text: str, device: str) -> None:
        self.text, self.device = text, device
        self._build()

    def _build(self) -> None:
        names: dict[str, Any] = {"__name__": "task"}
        with guarded(), torch.device(self.device):
            exec(compile(self.text, "<task>", "exec"), names)
            torch.manual_seed(0)
            self.model: torch.nn.Module = names["Model"](*names["get_init_inputs"]()).eval().requires_grad_(False)
        self._get_inputs = names["get_inputs"]

    def inputs(self, seed: int) -> list[Any]:
        with guarded(), torch.device(self.device):
            torch.manual_seed(seed)
            return list(self._get_inputs())

    def outputs(self, inputs: list[Any], seed: int = 0) -> list[torch.Tensor]:
        """Returns the output tensors as a flat list. `seed` seeds random operators inside the module. Raises Rejected
        if the module raises an error."""
        torch.manual_seed(seed)
        with guarded(), torch.no_grad():
            return [leaf for leaf in tree_leaves(self.model(*inputs)) if isinstance(leaf, torch.Tensor)]

    def fit(self, low: float, high: float, most_bytes: int, random: Random) -> float:
        """Changes the batch size in `text` and rebuilds the module until a call takes `low` to `high` milliseconds;
        returns the time in milliseconds. New batch sizes are limited so that the inputs have at most `most_bytes`.
        Raises Rejected if no batch size is found."""
        target = math.exp(random.uniform(math.log(1.6 * low), math.log(min(0.7 * high, SPAN * low))))
        milliseconds = 0.0
        for _ in range(FITS):
            inputs = self.inputs(1)
            milliseconds = self.milliseconds(inputs, low, high)
            if low <= milliseconds <= high:
                return milliseconds
            batch = batch_of(self.text)
            if batch is None:
                break
            held = sum(leaf.nbytes for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
            most = max(2, batch * most_bytes // max(held, 1))
            wanted = min(most, max(2, math.ceil(batch * target / milliseconds)))
            if wanted == batch:
                break
            self.text = with_batch(self.text, wanted)
            self._build()
        raise Rejected(Reason.too_fast if milliseconds < low else Reason.too_slow, f"{milliseconds:.3g} ms")

    def milliseconds(self, inputs: list[Any], low: float, high: float) -> float:
        """Returns the median time of a few calls, in milliseconds. If the first measured call is far outside of the
        range from `low` to `high`, its time is returned at once, because other probes wait."""
        times: list[float] = []
        with guarded(), torch.no_grad():
            for _ in range(CALLS + 1):
                self._wait()
                began = time.perf_counter()
                self.model(*inputs)
                self._wait()
                times.append(1e3 * (time.perf_counter() - began))
                if len(times) == 2 and not 0.5 * low <= times[1] <= 4 * high:
                    break
        return median(times[1:])

    def _wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()


class guarded:  # noqa: N801 - used as a with statement, as contextlib's are
    """A context manager that turns exceptions of the candidate's code into Rejected, with the reason memory or
    broken."""

    def __enter__(self) -> None:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._warnings.__exit__(None, None, None)
        if isinstance(error, Rejected) or not isinstance(error, (Exception, SystemExit)):
            return
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error):
            raise Rejected(Reason.memory, first_line(error)) from error
        raise Rejected(Reason.broken, first_line(error)) from error


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
