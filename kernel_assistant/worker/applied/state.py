"""Updates the buffers that the verified module changes in forward, after the kernels have run.

Plain Python over tuples, because `torch.compile` traces it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class StateUpdate:
    """The updates that `state` in the contract lists: `{"path": …, "output": index}` for a buffer whose new value is an
    output of the kernels, `{"path": …, "add": number}` for a counter."""

    def __init__(self, state: list[dict[str, Any]]) -> None:
        self.written = tuple((tuple(one["path"].split(".")), one["output"]) for one in state if "output" in one)
        self.added = tuple((tuple(one["path"].split(".")), one["add"]) for one in state if "add" in one)
        self.any = bool(self.written or self.added)

    def on(self, module: Any, outputs: Sequence[Any]) -> None:
        """Set the buffers of `module` to the values that its own forward would have left in them."""
        for path, index in self.written:
            _buffer(module, path).copy_(outputs[index])
        for path, number in self.added:
            _buffer(module, path).add_(number)


def _buffer(module: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        module = getattr(module, name)
    return module
