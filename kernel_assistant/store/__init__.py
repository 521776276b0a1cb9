"""The database of jobs, candidates, evaluations, transcripts, results and applied edits, which outlives each
process.
"""

from __future__ import annotations

from kernel_assistant.store.rows import AppliedCheck, EditRow, FreeformFiles, JobKind, JobOptions, JobRow, JobState
from kernel_assistant.store.store import Store

__all__ = ["AppliedCheck", "EditRow", "FreeformFiles", "JobKind", "JobOptions", "JobRow", "JobState", "Store"]
