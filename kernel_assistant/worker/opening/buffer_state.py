"""Keeps the buffers that forward changes, so that each call of the reference begins with the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from .task_checks import check_state_unchanged, held_state, same

Tensors = tuple[torch.Tensor, ...]


@dataclass
class BufferState:
    """The buffers that forward changes. `values` maps the dotted name of each to the value with which every call
    begins, `left` to its value after a call.

    `written` names the buffers whose new values are a candidate's last outputs, in that order; `added` maps counters
    (scalar integer buffers) to the number that a call adds to them. Both are empty until the exported graph is known
    (`agrees`).
    """

    values: dict[str, torch.Tensor] = field(default_factory=dict)
    left: dict[str, torch.Tensor] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)

    def agrees(self, written: list[str], added: Mapping[str, int]) -> bool:
        """Whether a graph changes the same buffers as the module did. `written` are the buffers with new values in the
        graph, `added` its counters with the number added. If it agrees, stores both."""
        if {*written, *added} != set(self.values):
            return False
        if not all(same(self.values[path] + number, self.left[path]) for path, number in added.items()):
            return False
        self.written, self.added = list(written), dict(added)
        return True

    def new_values(self) -> Tensors:
        """Returns the values that the buffers in `written` have after a call, in that order."""
        return tuple(self.left[path] for path in self.written)

    def rewind(self, model: torch.nn.Module) -> None:
        """Copies `values` back into the buffers of `model`, whose dtype may be another one, such as float64."""
        with torch.no_grad():
            for path, value in self.values.items():
                model.get_buffer(path).copy_(value)

    def call(self, model: torch.nn.Module, run: Callable[[], Tensors]) -> Tensors:
        """Calls `run`, which has to call `model` once, with the buffers at their first values. Returns its outputs,
        followed by the new values of the buffers in `written`; then resets the model's buffers.
        """
        if not self:
            return run()
        self.rewind(model)
        try:
            return (*run(), *_copies(model, self.written).values())
        finally:
            self.rewind(model)

    @contextmanager
    def beginning_as(self, model: torch.nn.Module) -> Iterator[None]:
        """Context manager: within the block, calls begin with the values that the buffers of `model` have now."""
        before = self.values
        self.values = _copies(model, before)
        try:
            yield
        finally:
            self.values = before

    def facts(self, outputs: int) -> list[dict[str, str | int]]:
        """Returns one dict for each changed buffer: its `path`, and either `output`, the index of the output with its
        new value (the user's own outputs, `outputs` in number, come first), or `add`, the number that a call adds to
        it."""
        given: list[dict[str, str | int]] = [
            {"path": path, "output": outputs + number} for number, path in enumerate(self.written)
        ]
        given += [{"path": path, "add": number} for path, number in self.added.items()]
        return given


def repeated(
    model: torch.nn.Module, first: Tensors, run: Callable[[], Tensors]
) -> tuple[BufferState, Tensors, Tensors]:
    """Calls forward again with `run`, after a call that returned `first`. Returns the state of the buffers that forward
    changes, and the outputs of two calls (with the buffers after them, if any change), which should be equal.

    State that the first call creates, such as a cache, is ignored. If the second call changes buffers, a third call is
    made with the same values of the buffers. Raises TaskError (mutates_inputs) if forward changes parameters or
    replaces buffers.
    """
    before, values = held_state(model), _copies(model, dict(model.named_buffers()))
    again = run()
    after = held_state(model)
    # Operators that update running statistics do not increase the version counter: compare the values.
    changed = [
        name
        for name, value in values.items()
        if name in after
        and before[name][0] == after[name][0]
        and (before[name] != after[name] or not same(value, model.get_buffer(name)))
    ]
    check_state_unchanged(before, model, changed)
    if not changed:
        return BufferState(), first, again
    held = BufferState({name: values[name] for name in changed}, _copies(model, changed))
    held.rewind(model)
    third = (*run(), *_copies(model, changed).values())
    held.rewind(model)
    return held, (*again, *held.left.values()), third


def _copies(model: torch.nn.Module, names: Iterable[str]) -> dict[str, torch.Tensor]:
    return {path: model.get_buffer(path).detach().clone() for path in names}
