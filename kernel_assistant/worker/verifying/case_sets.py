"""Shared memory for the inputs and outputs of one case.

It is kept from candidate to candidate where it is small, because making and mapping it takes longer than verifying.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..running.buffer_sets import BufferSets
from .verification import ExpectedOutputs, IncorrectOutput, made_sets

#: Most bytes of a case whose set is kept: of a larger one, sets for timing may need the memory.
KEEP_BYTES = 64 << 20


class CaseSets:
    """Sets for verifying candidates of one task, whose inputs have these names. `keeps`: whether the cases that come
    often keep theirs. Not where a candidate has a process of its own, which may still write while it dies."""

    def __init__(self, input_names: list[str], keeps: bool) -> None:
        self._input_names, self._keeps = input_names, keeps
        self._kept: BufferSets | None = None

    @contextmanager
    def of(self, plan: dict[str, Any], expected: ExpectedOutputs, often: bool) -> Iterator[BufferSets]:
        """One set of the sizes of `expected`, with its parameter values and without its inputs. The cases that come
        `often` have the same sizes."""
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
        """Free what is kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
