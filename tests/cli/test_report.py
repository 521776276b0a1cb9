"""Tests the commands that the report of a job suggests for its result."""

from __future__ import annotations

import pytest

from kernel_assistant.cli.report import report
from kernel_assistant.mcp.jobs import brief
from tests.common.results import best, result


@pytest.mark.parametrize(
    ("session", "command"),
    [("", "apply 7"), ("an IPython session", "export 7 DIR --to package")],
    ids=["file", "session"],
)
def test_a_gain_is_applied_to_a_file_and_exported_where_there_is_none(session, command):
    gain = result(best=best(), session=session, artifacts={"job": "7"})
    rows = [line.split() for line in report(gain)]
    assert [command.partition(" ")[0], "kernel-assistant", *command.split()] in rows
    assert brief(gain, "7")["next"] == command
