"""What is kept between sessions: jobs, candidates, evaluations, transcripts, results and applied edits."""

from __future__ import annotations

from kernel_assistant.store.rows import AppliedCheck, EditRow, Freeform, JobKind, JobOptions, JobRow, JobState
from kernel_assistant.store.store import Store

__all__ = ["AppliedCheck", "EditRow", "Freeform", "JobKind", "JobOptions", "JobRow", "JobState", "Store"]
