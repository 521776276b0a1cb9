"""Defines the records that crawling, the filter and the shards exchange."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.contract import GIB

#: The origin of an operator or a task.
Source = Literal["torch.nn", "torch.nn.functional", "torch.Tensor", "transformers", "composed", "model"]
#: The only number of a text that may be changed.
BATCH_LINE = r"^BATCH = (\d+)$"


class Reason(str, Enum):
    """Why the filter left out a candidate (the source of a proposed task), or `passed`; in the order of the checks.
    docs/tasks.md explains each value."""

    broken = "broken"
    crashed = "crashed"
    late = "late"
    memory = "memory"
    no_tensor = "no_tensor"
    not_finite = "not_finite"
    random = "random"
    constant = "constant"
    same_output = "same_output"
    too_fast = "too_fast"
    too_slow = "too_slow"
    no_graph = "no_graph"
    copy = "copy"
    unused_operator = "unused_operator"
    kernelbench = "kernelbench"
    duplicate = "duplicate"
    compile = "compile"
    passed = "passed"


@dataclass(frozen=True)
class Rules:
    """The filter's limits: `window` is the range of accepted times in milliseconds; `seconds` the time limit for
    judging a candidate; `most_bytes` the largest size of its inputs; `memory` the most bytes of the process (CPU) or of
    its GPU memory; `share` the largest fraction of the GPU's memory. `compile` is a backend of torch.compile."""

    device: str
    window: tuple[float, float]
    compile: str = "inductor"
    seconds: float = 120.0
    most_bytes: int = GIB
    memory: int = 8 * GIB
    share: float = 1.0
    threads: int = 1


class TaskText(Record, frozen=True, kw_only=True):
    """A candidate: the source `text` of a proposed task, number `number` of the stream. `operators` are the names that
    the source declares; `attribution` has a line with name, package, version and licence for each operator."""

    number: int
    source: Source
    operators: tuple[str, ...]
    attribution: tuple[str, ...]
    text: str


class FilterResult(Record, frozen=True, kw_only=True):
    """The filter's result for a candidate. `key`, `split`, `graph` and `eager_ms` are set only if the candidate reached
    the checks that determine them. `text` is the source with the fitted batch size, and `eager_ms` is eager PyTorch's
    time with it. `seconds` is how long judging took, and `spent` how long each stage of judging took, as the probe
    reports it."""

    number: int
    source: Source
    operators: tuple[str, ...]
    attribution: tuple[str, ...]
    text: str
    reason: Reason
    message: str = ""
    key: str = ""
    split: str = ""
    graph: OpGraph | None = None
    eager_ms: float = 0.0
    seconds: float = 0.0
    spent: dict[str, float] = {}

    def __post_init__(self) -> None:
        if self.reason is Reason.passed and (self.graph is None or not self.key):
            raise ValueError("what passed has a graph and a key")
