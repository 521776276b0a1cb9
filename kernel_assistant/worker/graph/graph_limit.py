"""Refuses, while a module is traced, a graph that becomes too large. A loop of many steps in `forward` makes a graph
that takes minutes to trace and is too large to search; the error names the line of the loop."""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..process.worker_errors import TaskError

#: Most PyTorch calls in one forward. Qwen3 with 28 layers makes 2,270.
MOST_CALLS = 4000
#: Attributes of tensors that are operators.
_OPERATORS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
SPLIT = "optimize the body of the loop as a class of its own, or write the loop as one operator over all steps"


class GraphTooLarge(TaskError):
    """The graph is too large; the caller need not try another way of tracing, because none makes it smaller."""


class CallLimit(TorchFunctionMode):
    """While active, counts the PyTorch calls that a model's `forward` makes, by the lines of its file. Raises
    GraphTooLarge, which names the line with most calls, after `MOST_CALLS`."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._name, self._file = type(model).__name__, _file_of(type(model))
        self._calls, self._lines = 0, Counter[int]()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        line = 0 if _reads_attribute(func) else self._line()
        if line:
            self._calls += 1
            self._lines[line] += 1
        if self._calls > MOST_CALLS:
            raise self._too_large()
        return func(*args, **(kwargs or {}))

    def _line(self) -> int:
        """Returns the number of the line in the model's file that makes the present call; 0 for calls of torch.export
        itself."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self._file:
            if frame.f_back is None:
                return 0
            frame = frame.f_back
        return frame.f_lineno

    def _too_large(self) -> GraphTooLarge:
        line, count = self._lines.most_common(1)[0]
        where = f"{count} of them from line {line} of {os.path.basename(self._file)}"
        cause = f"{self._name}.forward calls more than {MOST_CALLS} operators ({where}), a graph too large to search"
        return GraphTooLarge("unsupported_input", cause, SPLIT)


def _reads_attribute(func: Callable[..., Any]) -> bool:
    """Whether `func`, the function that torch passes to `__torch_function__`, reads an attribute of a tensor, such as
    `shape`. False for the attributes in `_OPERATORS`, such as `T`, which are operators. Reads of attributes are
    far more frequent than calls of operators, and do not count."""
    read = getattr(func, "__self__", None) if getattr(func, "__name__", "") == "__get__" else None
    return read is not None and getattr(read, "__name__", "") not in _OPERATORS


def _file_of(cls: type) -> str:
    forward = inspect.unwrap(cls.forward)  # type: ignore[attr-defined]
    return str(getattr(getattr(forward, "__code__", None), "co_filename", ""))
