"""A pytest plugin that writes down how long each file of tests took, for the order of the next run.

    make test PYTEST_FLAGS="-p bench.suite"

What has a line of its own in `tests/common/seconds.txt` keeps it: tests that need nothing of their file's others.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.common.order import TABLE, own_lines

#: Shorter files need no line: they begin last in any case.
LEAST_SECONDS = 3.0
HEAD = "# Seconds on two cores, four tests at a time, of files and of tests that need nothing of their file's others.\n"

_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Each phase of a test; with pytest-xdist in the process that the others report to."""
    _seconds[report.nodeid.partition("[")[0].partition("@")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    apart = own_lines()
    groups = Counter[str]()
    for test, seconds in _seconds.items():
        groups[test if test in apart else test.partition("::")[0]] += seconds
    found = sorted(((seconds, name) for name, seconds in groups.items()), reverse=True)
    lines = [f"{seconds:.0f} {name}\n" for seconds, name in found if seconds >= LEAST_SECONDS or name in apart]
    TABLE.write_text(HEAD + "".join(lines), encoding="utf-8")
