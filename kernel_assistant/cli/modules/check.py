"""The commands `kernel-assistant verify|profile CANDIDATE`, and `profile --lines FILE[:CLASS]`."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_assistant.cli.common import check_options, json_option, settings_for
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.report import report
from kernel_assistant.cli.text import styled
from kernel_assistant.cli.watch import watch
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_GATE, EXIT_OK, InternalError
from kernel_assistant.records import Evaluation, JobOutcome, encode
from kernel_assistant.records.line_profile import LineProfile, LineTime
from kernel_assistant.session.client import Client
from kernel_assistant.session.kinds.lines_job import read_lines
from kernel_assistant.session.prepare import prepare, prepare_check
from kernel_assistant.session.reporting.report import read_evaluation
from kernel_assistant.session.reporting.words import milliseconds
from kernel_assistant.source.build import split_spec
from kernel_assistant.store import JobKind

_candidate = click.argument("candidate", type=click.Path(path_type=Path))
_reference = click.option(
    "--reference", metavar="FILE[:CLASS]", help="Module that it must equal (default: its task.json)."
)
#: Kernels are listed below a line that takes at least this share of the time.
_WORTH = 0.05


@click.command("verify")
@_candidate
@_reference
@check_options
@json_option
def verify_command(candidate: Path, reference: str | None, as_json: bool, **flags: object) -> int:
    """Check CANDIDATE against its reference. Exit code 1 unless it is correct.

    CANDIDATE is a workspace (plan.json and sources), a KernelBench-style file with a class ModelNew, or a CUDA-Agent
    workdir. Its reference is what came with it, unless --reference names another.
    """
    return _check(JobKind.verify, candidate, reference, as_json, flags)


@click.command("profile")
@_candidate
@_reference
@click.option("--lines", is_flag=True, help="Times of each line of a module's forward; CANDIDATE is its FILE[:CLASS].")
@check_options
@json_option
def profile_command(candidate: Path, reference: str | None, lines: bool, as_json: bool, **flags: object) -> int:
    """Time CANDIDATE against eager and torch.compile by the full protocol. Exit code 1 unless it is correct.

    With --lines it is a module of yours, and each line of its forward is timed as eager PyTorch runs it.
    """
    if lines:
        from kernel_assistant.cli.modules.check import profile_lines

        return profile_lines(str(candidate), as_json, flags)
    return _check(JobKind.profile, candidate, reference, as_json, flags)


def _check(kind: JobKind, candidate: Path, reference: str | None, as_json: bool, flags: dict[str, object]) -> int:
    settings = settings_for(candidate, flags)
    task, options = prepare_check(candidate, reference, settings, kind)
    client = Client(settings)
    stream = client.attach(str(client.submit(task, options)["job"]))
    result = watch(
        client, stream, choose_progress(f"{kind.value} {candidate}", silent=as_json), cancel_on_interrupt=True
    )
    if result.outcome is JobOutcome.cancelled:
        return EXIT_CANCELLED
    evaluation = read_evaluation(result)
    if evaluation is None:
        raise InternalError("the evaluation is not where the job wrote it", f"kernel-assistant show {stream.job}")
    print(encode(evaluation).decode() if as_json else "\n".join([_verdict(evaluation), *report(result)[1:]]))
    return EXIT_OK if evaluation.correct else EXIT_GATE


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.correct:
        only = f"; at the declared sizes only, at others {evaluation.elsewhere}" if evaluation.elsewhere else ""
        return f"correct: {evaluation.message}{only}"
    return (
        f"not correct ({evaluation.outcome.value.replace('_', ' ')} at {evaluation.stage.value}): {evaluation.message}"
    )


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
