"""The command `kernel-assistant check [PATH…]`."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import msgspec

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.text import say_warning
from kernel_assistant.cli.watch import watch
from kernel_assistant.config import SANDBOXES, TARGETS, Settings
from kernel_assistant.errors import EXIT_INTERNAL, Cancelled, InternalError, KernelAssistantError, UsageError
from kernel_assistant.records import JobOutcome, encode
from kernel_assistant.session.check import CheckOptions, prepare_applied
from kernel_assistant.session.client import Client
from kernel_assistant.session.kinds.check_job import unchecked
from kernel_assistant.session.reporting.check_report import (
    CHECK_FILE,
    CheckReport,
    CheckStatus,
    ClassCheck,
    cannot_run,
    gated,
    read_check,
)
from kernel_assistant.session.reporting.words import milliseconds, times

SUITE = "kernel-assistant check"
#: Characters that XML 1.0 cannot contain, such as those with which compilers colour their messages.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@click.command("check")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--fail-under", type=float, metavar="X", help="Gate: a file below X times its original does not pass.")
@click.option("--no-timing", is_flag=True, help="Values alone: nothing is timed.")
@click.option("--kernels", is_flag=True, help="Times of the kernels alone, too, against torch.compile.")
@click.option(
    "--build-missing", is_flag=True, help="Binary for the architecture of this machine, added where it is missing."
)
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="File for a JUnit report.")
@click.option("--target", type=click.Choice(TARGETS), help="Device kind whose kernels are checked (default: all).")
@click.option("--python", metavar="PATH", help="Interpreter with torch (default: found from the project).")
@click.option("--sandbox", type=click.Choice(SANDBOXES), help="Sandbox of generated code.")
@json_option
def check_command(
    paths: tuple[Path, ...],
    fail_under: float | None,
    no_timing: bool,
    kernels: bool,
    build_missing: bool,
    junit: Path | None,
    as_json: bool,
    **flags: object,
) -> int:
    """Verify and time applied kernels again, under the torch, the device and the compiler that are here now.

    PATH is a folder (default: this one), a file with applied kernels, or their package. Exit code 1 if one does not
    pass: wrong, slower than the gate, out of date, not built, or without a binary for this device.
    """
    if no_timing and fail_under is not None:
        raise UsageError("--fail-under needs timing", "leave --no-timing out")
    if no_timing and kernels:
        raise UsageError("--kernels times", "leave --no-timing out")
    options = CheckOptions(timing=not no_timing, kernels=kernels, build_missing=build_missing)
    searched = paths or (Path.cwd(),)
    settings = settings_for(searched[0], flags)
    applied = _chosen(searched, settings)
    client = Client(settings)
    checks = []
    for one in applied:
        check = check_one(client, settings, one, options, silent=as_json)
        checks.append(_named(gated(check, fail_under)))
        if not as_json:
            print("\n".join(_lines(checks[-1])), flush=True)
    report = CheckReport(classes=tuple(checks), fail_under=fail_under)
    if junit is not None:
        write_junit(junit, report, {one.name: _lines(one) for one in checks})
    print(encode(report).decode() if as_json else _summary(report), flush=True)
    return report.exit_code


def _chosen(paths: tuple[Path, ...], settings: Settings) -> list[AppliedClass]:
    applied = find_applied(paths)
    if not applied:
        named = ", ".join(map(str, paths))
        raise UsageError(f"no applied kernels at or below {named}", "kernel-assistant apply FILE, or name another path")
    chosen = [one for one in applied if settings.target in ("auto", one.candidate.plan.target)]
    if not chosen:
        raise UsageError(f"none of {len(applied)} applied classes is for {settings.target}", "leave --target out")
    if len(chosen) < len(applied):
        say_warning(f"{len(applied) - len(chosen)} of {len(applied)} applied classes are not for {settings.target}")
    return chosen


def check_one(
    client: Client, settings: Settings, applied: AppliedClass, options: CheckOptions, *, silent: bool
) -> ClassCheck:
    """Check one class and return the result. An error becomes the status of the class, so that the other classes are
    still checked."""
    try:
        prepared = prepare_applied(applied, settings, options)
        if isinstance(prepared, ClassCheck):
            return prepared
        stream = client.attach(str(client.submit(prepared.task, prepared.options)["job"]))
        progress = choose_progress(f"check {applied.name}", silent=silent)
        result = watch(client, stream, progress, cancel_on_interrupt=True)
        if result.outcome is JobOutcome.cancelled:
            raise Cancelled("cancelled", "")
        if CHECK_FILE not in result.artifacts:
            raise InternalError("the check is not where the job wrote it", f"kernel-assistant show {stream.job}")
        return read_check(Path(result.artifacts[CHECK_FILE]))
    except Cancelled:
        raise
    except KernelAssistantError as error:
        return cannot_run(unchecked(applied), error)


def _named(check: ClassCheck) -> ClassCheck:
    """`check` with the path of its file relative to the current folder, if the file is below this folder."""
    path, _, class_name = check.name.rpartition(":")
    here = Path.cwd()
    below = Path(path).is_relative_to(here)
    return msgspec.structs.replace(check, name=f"{Path(path).relative_to(here)}:{class_name}") if below else check


def _lines(check: ClassCheck) -> list[str]:
    lines = [f"{check.name}: {check.status.value.replace('_', ' ')}: {check.message}"]
    if check.added:
        lines.append(f"  added      {check.added}")
    if check.binary:
        lines.append(f"  binary     {check.binary} on {check.device}")
    if check.applied is not None:
        row = check.applied
        was = f", {times(check.recorded.speedup)} when it was applied" if check.recorded.speedup is not None else ""
        lines.append(f"  the file   {milliseconds(row.applied_ms)}, was {milliseconds(row.original_ms)}{was}")
    if check.timing is not None:
        lines.append(f"  kernels    {_kernels(check)}")
    if not check.gate_met and check.next_step:
        lines.append(f"  next       {check.next_step}")
    return lines


def _kernels(check: ClassCheck) -> str:
    timing, then = check.timing, check.recorded.timing
    assert timing is not None
    words = f"{milliseconds(timing.candidate_ms)}, {times(timing.speedup_vs_compile)} torch.compile"
    if then is None:
        return words
    was = f"{milliseconds(then.candidate_ms)}, {times(then.speedup_vs_compile)}"
    return f"{words}; {was} on {check.recorded.device} on {check.recorded.date[:10]}"


def _summary(report: CheckReport) -> str:
    count = {status: sum(one.status is status for one in report.classes) for status in CheckStatus}
    parts = [f"{number} {status.value.replace('_', ' ')}" for status, number in count.items() if number]
    return f"{len(report.classes)} applied: {', '.join(parts)}"


def write_junit(path: Path, report: CheckReport, lines: dict[str, list[str]]) -> None:
    """Write `report` to `path` as JUnit XML. `lines` maps the name of each class to lines with its details. Raises
    UsageError if it cannot be written."""
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
