"""Tests the commands that the report of a job suggests for its result."""

from __future__ import annotations

import pytest

from kernel_assistant.cli.conclude import failure_as_json
from kernel_assistant.cli.report import report
from kernel_assistant.errors import Cancelled, UsageError
from kernel_assistant.mcp.jobs import brief
from kernel_assistant.records import JobOutcome, OptimizeResult, Spending, decode
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


def test_the_report_says_what_the_model_has_cost():
    spent = Spending(requests=3, tokens_in=12_100, tokens_out=1_200, money=0.25)
    asked = result(best=best(), spent=spent, stop_reason="money", artifacts={"job": "7"})
    told = "\n".join(report(asked))
    assert "3 requests, 12.1k tokens in, 1.2k out, cost 0.25" in told
    assert "stopped: money" in told and brief(asked, "7")["spent"]["requests"] == 3
    assert "requests" not in "\n".join(report(result(best=best(), artifacts={"job": "7"})))


def test_a_job_that_fails_prints_a_result_with_what_failed_and_what_to_try(capsys):
    with pytest.raises(UsageError), failure_as_json("7", "net.py:Net", "cpu", as_json=True):
        raise UsageError("Net.forward failed at net.py:4: ValueError: no luck", "mend forward")
    told = decode(capsys.readouterr().out, OptimizeResult)
    assert (told.outcome, told.job, told.best) == (JobOutcome.failed, 7, None)
    (obstacle,) = told.obstacles
    assert (obstacle.check, obstacle.next_step) == ("module", "mend forward") and "net.py:4" in obstacle.message
    for error, as_json in ((UsageError("no", "yes"), False), (Cancelled("cancelled"), True)):
        with pytest.raises(type(error)), failure_as_json("7", "net.py:Net", "cpu", as_json=as_json):
            raise error
    assert capsys.readouterr().out == ""
