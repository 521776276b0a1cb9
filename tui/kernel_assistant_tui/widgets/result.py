"""The best result so far, or of a job that has ended."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from kernel_assistant_tui.view.job_view import JobView


class Result(VerticalScroll):
    def compose(self) -> ComposeResult:
        yield Static("No result yet.", id="result-head", markup=False)

    def show(self, view: JobView) -> None:
        self.query_one("#result-head", Static).update(view.counts)
