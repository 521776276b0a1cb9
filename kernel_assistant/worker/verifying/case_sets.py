"""Makes shared memory for the inputs and outputs of one case, that is, of one choice of inputs.

The memory of a small case is kept from candidate to candidate, because making and mapping it takes longer than
verifying."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..running.buffer_sets import BufferSets
from .verification import ExpectedOutputs, IncorrectOutput, made_sets

#: Most bytes of a case whose set is kept: of a larger one, sets for timing may need the memory.
KEEP_BYTES = 64 << 20


class CaseSets:
    """Makes the shared memory in which candidates of one task run while they are verified; `input_names` are the task's
    inputs. With `keeps`, the memory for frequent cases is used again for the next candidate. That is unsafe where each
    candidate has a process of its own, which may still write while it ends."""

    def __init__(self, input_names: list[str], keeps: bool) -> None:
        self._input_names, self._keeps = input_names, keeps
        self._kept: BufferSets | None = None

    @contextmanager
    def of(self, plan: dict[str, Any], expected: ExpectedOutputs, often: bool) -> Iterator[BufferSets]:
        """Context manager that yields a `BufferSets` with one copy of inputs and outputs in the sizes of `expected`;
        parameter values are written, inputs are not. `often` marks a frequent case; all frequent cases have the same
        sizes. Raises IncorrectOutput if the plan has another number of outputs."""
        names = [spec["name"] for spec in plan["outputs"]]
        if len(names) != len(expected.reference):
            raise IncorrectOutput(
                "incorrect", f"the plan has {len(names)} outputs, the module {len(expected.reference)}"
            )
        keep = self._keeps and often and expected.bytes <= KEEP_BYTES
        if keep and self._kept is not None:
            self._kept.rename_outputs(names)
            # A candidate may read what another one has left there as soon as it is bound.
            self._kept.wipe()
            self._kept.write_constants(expected.constants)
            yield self._kept
            return
        sets = made_sets(self._input_names, names, expected, 1, "kept " if keep else "")
        if keep:
            self._kept = sets
        try:
            yield sets
        finally:
            if not keep:
                sets.close()

    def close(self) -> None:
        """Frees the memory that was kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
