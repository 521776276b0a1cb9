"""Tests the consequences of verdicts: gates, exit codes, the JUnit file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kernel_assistant.cli.edits.applied import write_junit
from kernel_assistant.errors import InternalError, MissingError, UsageError
from kernel_assistant.session.kinds.applied_timing import AppliedRow
from kernel_assistant.session.reporting.check_report import (
    AppliedRecord,
    CheckReport,
    CheckStatus,
    ClassCheck,
    cannot_run,
    gated,
)


def check(status: CheckStatus = CheckStatus.ok, speedup: float = 1.0, name: str = "a/model.py:Gate") -> ClassCheck:
    times = {"original_ms": speedup, "applied_ms": 1.0, "speedup": speedup}
    ci = (speedup * 0.99, speedup * 1.01)
    row = AppliedRow(name="alone", dims={}, elements=1, speedup_ci=ci, equal=True, **times)
    about = {"class_name": "Gate", "package": "a/model_kernels", "target": "cpu", "recorded": AppliedRecord()}
    return ClassCheck(name=name, status=status, message=status.value, applied=row, seconds=1.5, **about)


@pytest.mark.parametrize(
    ("speedup", "fail_under", "status"),
    [
        (1.0, None, CheckStatus.ok),
        (0.995, None, CheckStatus.ok),
        (0.9, None, CheckStatus.slower),
        (1.2, 1.3, CheckStatus.slower),
        (1.3, 1.3, CheckStatus.ok),
        (0.9, 0.5, CheckStatus.ok),
    ],
)
def test_the_gate(speedup, fail_under, status):
    assert gated(check(speedup=speedup), fail_under).status is status


def test_a_gate_changes_no_other_verdict():
    wrong = check(CheckStatus.wrong, speedup=0.1)
    assert gated(wrong, 2.0) is wrong


MISSING = cannot_run(check(), MissingError("no GPU", "get one"))
UNUSABLE = cannot_run(check(), UsageError("no inputs", "declare them"))
BROKEN = cannot_run(check(), InternalError("lost", "see the log"))


@pytest.mark.parametrize(
    ("classes", "code"),
    [
        ((check(), check()), 0),
        ((check(), check(CheckStatus.stale)), 1),
        ((MISSING, check(CheckStatus.no_binary)), 1),
        ((check(), MISSING), 3),
        ((UNUSABLE, MISSING), 3),
        ((UNUSABLE, check()), 2),
        ((BROKEN, check(CheckStatus.wrong), MISSING), 4),
    ],
)
def test_exit_codes(classes, code):
    assert CheckReport(classes=classes).exit_code == code


def test_only_what_cannot_run_carries_a_code():
    with pytest.raises(ValueError, match="cannot run"):
        check(CheckStatus.cannot_run)


def test_junit_says_each_verdict_in_its_own_way(tmp_path: Path):
    outside = check(name="vendor.layers:Gate")
    classes = (check(), check(CheckStatus.cannot_build), MISSING, BROKEN, outside)
    path = tmp_path / "new" / "report.xml"
    lines = {one.name: ["\x1b[31mred\x1b[0m <tag> & \x00", "second"] for one in classes}
    write_junit(path, CheckReport(classes=classes), lines)
    suite = ET.parse(path).getroot()[0]
    counts = [suite.get(key) for key in ("tests", "failures", "errors", "skipped", "time")]
    assert counts == ["5", "1", "1", "1", "7.500"]
    kinds = [[element.tag for element in case if element.tag != "system-out"] for case in suite]
    assert kinds == [[], ["failure"], ["skipped"], ["error"], []]
    assert suite[0].get("file") == "a/model.py" and suite[4].get("file") is None
    assert suite[4].get("classname") == "vendor.layers"
    assert suite[0].findtext("system-out") == "[31mred[0m <tag> & \nsecond"
    failure = suite[1].find("failure")
    assert failure is not None and failure.get("type") == "cannot_build"
