"""A line at the end of a run for each kind of tests that it left out, with their number and command."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.common.kinds import KINDS, left_out

#: What processes of pytest-xdist report their counts under.
KEY = "left_out"


class LeftOut:
    """A plugin of pytest. Every process collects all tests, so that the counts of one are those of the run."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        kinds = [left_out({mark.name for mark in item.iter_markers()}) for item in items]
        self._counts = dict(Counter(kind.marker for kind in kinds if kind))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[KEY] = self._counts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._counts = getattr(node, "workeroutput", {}).get(KEY) or self._counts

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for kind in KINDS:
            if number := self._counts.get(kind.marker):
                terminalreporter.write_line(f"left out {number:4d}: {kind.marker} ({kind.command}): {kind.cause}")
