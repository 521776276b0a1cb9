"""Prepares the confirmation (full tier) of the best candidate of a job that was stopped early or was not clear."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.artifacts import read_workspace
from kernel_assistant.session.edits import is_of, place_named
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.reporting.report import read_evaluation
from kernel_assistant.store import JobKind, JobOptions, JobRow, Store


def prepare_confirm(store: Store, row: JobRow) -> tuple[KernelTask, JobOptions]:
    """Returns the job that confirms the best candidate of `row`, with the same text and interpreter.

    It is an `optimize` job without a search, so its result can be shown, applied and discarded like any other.
    Raises UsageError if there is no candidate.
    """
    if row.result is None or "plan.json" not in row.result.artifacts or row.options.freeform is not None:
        raise UsageError(f"job {row.id} has no candidate to measure", f"kernel-assistant show {row.id}")
    evaluation = read_evaluation(row.result)
    # The store also knows the candidate's origin. A job from a remote machine has its candidate only in its folder.
    candidate = store.candidate(evaluation.candidate) if evaluation is not None else None
    candidate = candidate or read_workspace(Path(row.result.artifacts["plan.json"]).parent)
    return row.task, msgspec.structs.replace(row.options, kind=JobKind.optimize, candidate=candidate, free_wins=False)


def find_unconfirmed(store: Store, what: str) -> JobRow:
    """Returns the job that `what` names: a number, `last`, or the newest of `FILE[:CLASS]` whose gain is not known.

    Raises UsageError if there is none.
    """
    if what == "last" or what.isdigit():
        return store.job(what)
    selection = place_named(what)
    for row in store.jobs(limit=100_000):
        if row.result is not None and is_of(row, selection) and is_unconfirmed(row.result):
            return row
    raise UsageError(f"no job of {what} kept a candidate whose gain is not known", f"kernel-assistant optimize {what}")
