"""Several forms of one problem, called on the same inputs in one process: checked against float64 and timed in turn."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from bench.harness import Row
from bench.kernelbench.checkout import SEED
from bench.kernelbench.problems import executed

Result = TypeVar("Result")

#: Seconds of timing, and the fewest and most rounds of it.
TIMED_SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 4.0, 5, 100
#: What takes longer in its first call is not called again; its time is that of one call.
SLOW_SECONDS = 2.0
#: Seconds after which a call counts as a failure.
MOST_CALL_SECONDS = 20.0


@dataclass(frozen=True)
class Loaded:
    """Reference and ours, made with KernelBench's seed, in inference mode, with their inputs on the device `target`.
    `ours` is None if there is no candidate."""

    model: Any
    ours: Any
    inputs: tuple[Any, ...]
    target: str

    @staticmethod
    def of(problem: Path, ours: Path | None, target: str) -> Loaded:
        """Runs both files. Raises RuntimeError."""
        import torch

        with stage("the problem"):
            names = executed(problem)
            torch.manual_seed(SEED)
            given = names["get_init_inputs"]()
            model = _made(names["Model"], given, target)
            new = _made(executed(ours)["ModelNew"], given, target) if ours is not None else None
            torch.manual_seed(SEED)
            made = (one.to(target) if isinstance(one, torch.Tensor) else one for one in names["get_inputs"]())
            return Loaded(model, new, tuple(made), target)

    def call(self, column: Callable[..., Any]) -> Callable[[], Any]:
        """One call of the column, done when the device has finished."""
        import torch

        def called() -> Any:
            with torch.no_grad():
                output = column(*self.inputs)
            if self.target == "cuda":
                torch.cuda.synchronize()
            return output

        return called

    def exact(self) -> list[Any]:
        """The reference's outputs in float64, also of the tensors that it makes itself. Raises RuntimeError."""
        import torch

        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with stage("float64"), torch.no_grad():
                model = copy.deepcopy(self.model).double()
                return tensors(model(*(one.double() if _is_float(one) else one for one in self.inputs)))
        finally:
            torch.set_default_dtype(before)


@dataclass
class Columns:
    """The columns that were checked: how each differs from float64, and the seconds of a call of those that answer."""

    loaded: Loaded
    numerics: str
    checks: dict[str, Row] = field(default_factory=dict)
    calls: dict[str, Callable[[], Any]] = field(default_factory=dict)
    firsts: dict[str, float] = field(default_factory=dict)

    def check(self, name: str, column: Callable[..., Any], built: bool) -> None:
        """Whether a column passes the project's bounds. One that raises does not pass, and is not timed. One that is
        not `built` builds itself in a call before."""
        call = self.loaded.call(column)
        try:
            with stage(f"a call of {name}"):
                if not built:
                    call()
                began = time.perf_counter()
                got = tensors(within(MOST_CALL_SECONDS, call))
                seconds = time.perf_counter() - began
        except RuntimeError as error:
            self.checks[name] = {"passed": False, "error": None, "why": str(error)}
            return
        self.checks[name] = _compared(got, self._reference, self._exact, self.numerics)
        self.calls[name], self.firsts[name] = call, seconds

    @cached_property
    def _reference(self) -> list[Any]:
        return tensors(self.loaded.call(self.loaded.model)())

    @cached_property
    def _exact(self) -> list[Any]:
        return self.loaded.exact()

    def times(self) -> dict[str, Row]:
        """See `timed`."""
        return timed(self.calls, self.firsts)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Raises RuntimeError with the name of the stage and the first line of whatever is raised in it."""
    try:
        yield
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        raise RuntimeError(f"{name}: {type(error).__name__}: {lines[0]}") from error


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """What the call returns. Raises TimeoutError if it takes longer; then its thread goes on until the process ends."""
    thread = ThreadPoolExecutor(1)
    try:
        return thread.submit(call).result(seconds)
    except TimeoutError:
        raise TimeoutError(f"more than {seconds:.0f} s") from None


def timed(calls: Mapping[str, Callable[[], object]], firsts: Mapping[str, float]) -> dict[str, Row]:
    """For each call the median and the quartiles in milliseconds, and the number of rounds. In a round each is called
    once. What took more than `SLOW_SECONDS` in its first call has the time of that alone."""
    fast = [name for name in calls if firsts[name] <= SLOW_SECONDS]
    for name in fast:
        calls[name]()
    samples: dict[str, list[float]] = {name: [] if name in fast else [firsts[name]] for name in calls}
    until = time.monotonic() + TIMED_SECONDS
    for count in range(MOST_ROUNDS if fast else 0):
        if count >= LEAST_ROUNDS and time.monotonic() > until:
            break
        first = count % len(fast)
        for name in (*fast[first:], *fast[:first]):
            began = time.perf_counter()
            calls[name]()
            samples[name].append(time.perf_counter() - began)
    return {name: summary(values) for name, values in samples.items()}


def summary(seconds: Sequence[float]) -> Row:
    """Median and quartiles of times, in milliseconds."""
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive") if seconds[1:] else (seconds[0],) * 3
    return {"ms": 1e3 * middle, "quartiles": [1e3 * low, 1e3 * high], "rounds": len(seconds)}


def tensors(tree: Any) -> list[Any]:
    """The tensors of an output, as PyTorch's."""
    import torch

    if isinstance(tree, torch.Tensor):
        return [tree]
    if hasattr(tree, "__dlpack__"):
        return [torch.from_dlpack(tree)]
    return [leaf for one in tree for leaf in tensors(one)]


def _compared(got: Sequence[Any], reference: Sequence[Any], want: Sequence[Any], numerics: str) -> Row:
    from kernel_assistant.worker.verifying.numerics import compare

    if [one.shape for one in got] != [one.shape for one in want]:
        return {"passed": False, "error": math.inf, "why": "other shapes"}
    every = [compare(*three, numerics) for three in zip(got, reference, want, strict=True)]
    why = next((one.why for one in every if not one.passed), "")
    return {"passed": not why, "error": max(one.error for one in every), "why": why}


def _made(model: Any, given: Sequence[Any], target: str) -> Any:
    import torch

    torch.manual_seed(SEED)
    return model(*given).to(target).eval()


def _is_float(one: Any) -> bool:
    import torch

    return isinstance(one, torch.Tensor) and one.is_floating_point()
