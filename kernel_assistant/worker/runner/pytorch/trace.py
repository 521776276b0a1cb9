"""Names the PyTorch operators that are called while kernels of a candidate run; kernels have no reason to call any.
Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchedOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the operators that go through the dispatcher on this thread, from C++ as well."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: set[Any] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False. For True, torch would import its compiler before it calls this mode, which takes seconds and
        needs a cache folder that a sandbox may lack."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operators.add(func)
        return func(*args, **(kwargs or {}))


def operators_during(call: Callable[[], object]) -> list[str]:
    """Runs `call` and returns the names of the operators that reach the dispatcher during it. Raises RuntimeError if
    the dispatcher cannot be watched here."""
    with DispatchedOperators() as seen:
        # Proves that the mode sees operators.
        torch.empty(0)
        call()
    if not seen.operators:
        raise RuntimeError("the dispatch mode does not work here")
    return sorted({str(each) for each in seen.operators} - {"aten.empty.memory_format"})
