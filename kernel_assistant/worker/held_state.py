"""Buffers that forward changes: each call of the reference begins with the same values, whatever ran before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from .task_checks import check_state_unchanged, held_state, same

Tensors = tuple[torch.Tensor, ...]


@dataclass
class HeldState:
    """`values` are what every call begins with, by dotted name of the buffer, and `left` what a call has left in them.

    `written` are those of which a candidate writes the new value, in the order of its last outputs; `added` are
    counters, with what a call adds to them. Both are empty until the exported graph has said so (`agrees`).
    """

    values: dict[str, torch.Tensor] = field(default_factory=dict)
    left: dict[str, torch.Tensor] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)

    def agrees(self, written: list[str], added: Mapping[str, int]) -> bool:
        """Whether a graph changes what the module was seen to change; if so it is noted."""
        if {*written, *added} != set(self.values):
            return False
        if not all(same(self.values[path] + number, self.left[path]) for path, number in added.items()):
            return False
        self.written, self.added = list(written), dict(added)
        return True

    def new_values(self) -> Tensors:
        """What a call has left in the buffers that are outputs, in their order."""
        return tuple(self.left[path] for path in self.written)

    def rewind(self, model: torch.nn.Module) -> None:
        """Put the values back into `model`, which may be in another precision."""
        with torch.no_grad():
            for path, value in self.values.items():
                model.get_buffer(path).copy_(value)

    def call(self, model: torch.nn.Module, run: Callable[[], Tensors]) -> Tensors:
        """Outputs of one call of `model` and the new values behind them; the model is left as it was before."""
        if not self:
            return run()
        self.rewind(model)
        try:
            return (*run(), *_copies(model, self.written).values())
        finally:
            self.rewind(model)

    @contextmanager
    def beginning_as(self, model: torch.nn.Module) -> Iterator[None]:
        """For the block, calls begin with what the buffers of `model` hold now."""
        before = self.values
        self.values = _copies(model, before)
        try:
            yield
        finally:
            self.values = before

    def facts(self, outputs: int) -> list[dict[str, str | int]]:
        """As builtins: the index of the output that each buffer gets, behind the `outputs` of the user, or what is
        added to it."""
        given: list[dict[str, str | int]] = [
            {"path": path, "output": outputs + number} for number, path in enumerate(self.written)
        ]
        given += [{"path": path, "add": number} for path, number in self.added.items()]
        return given


def repeated(model: torch.nn.Module, first: Tensors, run: Callable[[], Tensors]) -> tuple[HeldState, Tensors, Tensors]:
    """Call again, after a call that gave `first` → (what forward changes, outputs of two calls that should be equal).

    What the first call prepares (a cache) is the module's own affair. Where the second one changes buffers, a third
    begins with the same values. Raises mutates_inputs for parameters, and for buffers that are replaced.
    """
    before, values = held_state(model), _copies(model, dict(model.named_buffers()))
    again = run()
    after = held_state(model)
    # Operators that move running statistics do not count a version of them: the values tell.
    changed = [
        name
        for name, value in values.items()
        if name in after
        and before[name][0] == after[name][0]
        and (before[name] != after[name] or not same(value, model.get_buffer(name)))
    ]
    check_state_unchanged(before, model, changed)
    if not changed:
        return HeldState(), first, again
    held = HeldState({name: values[name] for name in changed}, _copies(model, changed))
    held.rewind(model)
    third = (*run(), *_copies(model, changed).values())
    held.rewind(model)
    return held, (*again, *held.left.values()), third


def _copies(model: torch.nn.Module, names: Iterable[str]) -> dict[str, torch.Tensor]:
    return {path: model.get_buffer(path).detach().clone() for path in names}
