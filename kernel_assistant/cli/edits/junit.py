"""A check as JUnit XML, in the dialect that GitHub, GitLab and Jenkins read: one test case for each class."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

from kernel_assistant.errors import EXIT_INTERNAL, UsageError
from kernel_assistant.session.reporting.check_report import CheckReport, CheckStatus, ClassCheck

SUITE = "kernel-assistant check"
#: What XML 1.0 has no character for; compilers colour their messages.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, report: CheckReport, lines: dict[str, list[str]]) -> None:
    """Write `report` to `path`; `lines` are the details of each class by its name. Raises UsageError."""
    cases = [_case(one, lines.get(one.name, [])) for one in report.classes]
    suite = ET.Element(
        "testsuite",
        name=SUITE,
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=f"{sum(one.seconds for one in report.classes):.3f}",
        timestamp=datetime.now(UTC).isoformat(timespec="seconds").removesuffix("+00:00"),
        hostname=socket.gethostname(),
    )
    suite.extend(cases)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "name another file with --junit") from error


def _case(check: ClassCheck, lines: list[str]) -> ET.Element:
    where = check.name.rpartition(":")[0]
    case = ET.Element("testcase", classname=where, name=check.class_name, time=f"{check.seconds:.3f}")
    if where.endswith(".py"):
        case.set("file", where)
    kind = _kind(check)
    message = _plain(check.message)
    if kind:
        element = ET.SubElement(case, kind, message=message)
        if kind != "skipped":
            element.set("type", check.status.value)
            element.text = _plain("\n".join([message, *([f"next: {check.next_step}"] if check.next_step else [])]))
    output = ET.SubElement(case, "system-out")
    output.text = _plain("\n".join(lines))
    return case


def _kind(check: ClassCheck) -> str:
    if check.gate_met:
        return ""
    if check.status is CheckStatus.cannot_run:
        return "error" if check.exit_code == EXIT_INTERNAL else "skipped"
    return "failure"


def _plain(text: str) -> str:
    return _NO_XML.sub("", text)
