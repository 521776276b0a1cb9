"""LineProfile: the time of one call of a module, line by line of its class."""

from __future__ import annotations

import re

from kernel_assistant.records.codec import Record

SCHEMA = "kernel-assistant/lines/1"

#: Parts of the names of PyTorch's kernels that do not say what the kernels compute.
_CARRIERS = {
    "BinaryFunctor",
    "AUnaryFunctor",
    "BUnaryFunctor",
    "CUDAFunctor",
    "gpu_kernel_impl",
    "gpu_kernel_impl_nocast",
}
_SAYS_WHAT = re.compile(r"cutlass_\d\w*|\w*(?:Functor|Ops\b|_kernel)\w*")


class LineKernel(Record, frozen=True, kw_only=True):
    """A kernel of the GPU (on the CPU: an operator of PyTorch) that ran for a line. `calls` and `ms` (milliseconds) are
    totals of one forward."""

    name: str
    calls: float
    ms: float

    @property
    def plain(self) -> str:
        """The kernel's name without namespaces, types and arguments. If a template argument names the computation, it
        is added: `vectorized_elementwise_kernel (silu_kernel)`."""
        if not re.search("[<(]", self.name):
            return self.name
        template = self.name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("at::native::", "")
        outer = re.split(r"[<(]", template, maxsplit=1)[0].strip()
        inner = [word for word in _SAYS_WHAT.findall(template) if word != outer and word not in _CARRIERS]
        return f"{outer} ({inner[0]})" if inner else outer or self.name


class LineTime(Record, frozen=True, kw_only=True):
    """One statement, in the lines `line` to `end_line` of the file (1-based). For an `if`, `for` or `with` statement,
    it is only the head.

    `ms` is the time of all executions of the statement in one forward, including the functions that it calls, as the
    median over runs; `share` is its share of the time of all lines of forward. On CUDA `ms` is time on the device and
    `host_ms` the time of Python on the host; elsewhere they are the same. `read_bytes` and `written_bytes` are the
    bytes that the line would have to move if it were one kernel: values that existed before it and that it reads, and
    values that it writes and that exist after it. `roofline` is the time to move these bytes at the measured bandwidth,
    divided by `ms`; None if the bandwidth is unknown or all of the bytes fit into the cache. `flops` counts matrix
    products and convolutions only.
    """

    line: int
    end_line: int
    function: str
    calls: float
    ms: float
    host_ms: float
    share: float
    read_bytes: int = 0
    written_bytes: int = 0
    flops: int = 0
    roofline: float | None = None
    kernels: tuple[LineKernel, ...] = ()

    @property
    def launch_bound(self) -> bool:
        """Whether kernels ran for less than half of `ms`, so that launching them takes most of the time."""
        return bool(self.kernels) and sum(kernel.ms for kernel in self.kernels) < 0.5 * self.ms


class LineProfile(Record, frozen=True, kw_only=True):
    """The profile of a class. `source` is the text of the class that was run and `first_line` where it began, so that
    lines can be found again after edits; `ms` is the time of a plain forward, without timers between its lines."""

    path: str
    class_name: str
    source: str
    first_line: int
    target: str
    device: str
    torch: str
    workload: str
    ms: float
    runs: int
    lines: tuple[LineTime, ...]
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if not self.lines:
            raise ValueError("a profile has at least one line")

    @property
    def last_line(self) -> int:
        return self.first_line + self.source.count("\n") - self.source.endswith("\n")
