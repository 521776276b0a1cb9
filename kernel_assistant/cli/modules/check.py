"""The commands `kernel-assistant verify|profile CANDIDATE`."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_assistant.cli.common import check_options, json_option, settings_for
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.report import report
from kernel_assistant.cli.watch import watch
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_GATE, EXIT_OK, InternalError
from kernel_assistant.records import Evaluation, JobOutcome, encode
from kernel_assistant.session.client import Client
from kernel_assistant.session.prepare import prepare_check
from kernel_assistant.session.reporting.report import read_evaluation
from kernel_assistant.store import JobKind

_candidate = click.argument("candidate", type=click.Path(path_type=Path))
_reference = click.option(
    "--reference", metavar="FILE[:CLASS]", help="Module that it must equal (default: its task.json)."
)


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
        from kernel_assistant.cli.modules.lines import profile_lines

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
