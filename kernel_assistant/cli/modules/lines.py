"""`kernel-assistant profile --lines FILE[:CLASS]`: the class's text with the time of each line beside it."""

from __future__ import annotations

from kernel_assistant.cli.common import settings_for
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.text import styled
from kernel_assistant.cli.watch import watch
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_OK, InternalError
from kernel_assistant.records import JobOutcome, encode
from kernel_assistant.records.line_profile import LineProfile, LineTime
from kernel_assistant.session.client import Client
from kernel_assistant.session.kinds.lines_job import read_lines
from kernel_assistant.session.prepare import prepare
from kernel_assistant.session.reporting.words import milliseconds
from kernel_assistant.source.build import split_spec
from kernel_assistant.store import JobKind

#: Kernels are listed below a line that takes at least this share of the time.
_WORTH = 0.05


def profile_lines(spec: str, as_json: bool, flags: dict[str, object]) -> int:
    settings = settings_for(split_spec(spec)[0], flags)
    task, options = prepare(spec, settings, kind=JobKind.lines, inputs=settings.inputs)
    client = Client(settings)
    stream = client.attach(str(client.submit(task, options)["job"]))
    progress = choose_progress(f"lines of {task.name}", silent=as_json)
    result = watch(client, stream, progress, cancel_on_interrupt=True)
    if result.outcome is JobOutcome.cancelled:
        return EXIT_CANCELLED
    profile = read_lines(result)
    if profile is None:
        raise InternalError("the profile is not where the job wrote it", f"kernel-assistant show {stream.job}")
    print(encode(profile).decode() if as_json else "\n".join(_text(profile)))
    return EXIT_OK


def _text(profile: LineProfile) -> list[str]:
    head = f"{profile.class_name} on {profile.device} ({profile.target}), eager, {milliseconds(profile.ms)} a forward"
    lines = [styled(head, bold=True), f"{'line':>5} {'time':>10} {'share':>6} {'roofline':>8}"]
    times = {row.line: row for row in profile.lines}
    for number, text in enumerate(profile.source.splitlines(), start=profile.first_line):
        row = times.get(number)
        lines.append(f"{number:>5} {_figures(row)}  {text}".rstrip())
        if row is not None and row.share >= _WORTH:
            lines += [f"{'':34}  {'':4}{milliseconds(one.ms)} {one.calls:g} × {one.plain}" for one in row.kernels[:3]]
    return lines


def _figures(row: LineTime | None) -> str:
    if row is None:
        return " " * 26
    roofline = f"{row.roofline:.0%}" if row.roofline is not None else ""
    return f"{milliseconds(row.ms):>10} {row.share:>6.1%} {roofline:>8}"
