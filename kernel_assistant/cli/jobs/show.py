"""`kernel-assistant show JOB` prints everything that the store has about a job. It needs no session host."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import click

from kernel_assistant.cli.common import json_option, open_store, settings_for
from kernel_assistant.cli.remote import fetched_from, host_options
from kernel_assistant.cli.report import report
from kernel_assistant.cli.text import styled, table
from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_OK
from kernel_assistant.records import Candidate, Evaluation, Step, encode, to_builtins
from kernel_assistant.session.assembly import assembly_of
from kernel_assistant.session.reporting.words import milliseconds, times
from kernel_assistant.store import JobRow

_MOST_ROWS = 20


@click.command("show")
@click.argument("job", default="last")
@host_options
@json_option
@click.option("--all", "everything", is_flag=True, help="All evaluations, not the best twenty.")
@click.option("--source", is_flag=True, help="Sources of the best candidate too.")
@click.option("--assembly", is_flag=True, help="PTX and SASS of the best candidate (CPU: assembly) instead.")
@click.option("--transcript", is_flag=True, help="Conversations with models instead, one JSON object each.")
def show_command(
    job: str, as_json: bool, everything: bool, source: bool, assembly: bool, transcript: bool, **flags: object
) -> int:
    """Report of JOB (a number or `last`): numbers, evaluations, kernels and graph."""
    settings = settings_for(None, flags)
    if settings.host:
        with tempfile.TemporaryDirectory() as folder, fetched_from(settings, job, Path(folder)) as fetched:
            if assembly:
                return _show_assembly(fetched.row, settings, as_json=as_json)
            where: dict[str, object] = {"host": {"name": settings.host}}
            return _show(fetched.row, fetched.steps, where, as_json=as_json, everything=everything, source=source)
    store = open_store(settings)
    row = store.job(job)
    if transcript:
        print("\n".join(encode(conversation).decode() for conversation in store.transcripts.of(row.id)))
        return EXIT_OK
    if assembly:
        return _show_assembly(row, settings, as_json=as_json)
    return _show(row, store.steps(row.id), {}, as_json=as_json, everything=everything, source=source)


def _show(
    row: JobRow, steps: tuple[Step, ...], where: dict[str, object], *, as_json: bool, everything: bool, source: bool
) -> int:
    if as_json:
        print(json.dumps({**to_builtins(row), "steps": to_builtins(steps), **where}))
        return EXIT_OK
    lines = [*_head(row), *_evaluations(steps, None if everything else _MOST_ROWS), *_graph(row)]
    print("\n".join(lines + (_sources(row) if source else [])))
    return EXIT_OK


def _show_assembly(row: JobRow, settings: Settings, *, as_json: bool) -> int:
    assembly = assembly_of(row, settings)
    if as_json:
        print(json.dumps({"files": assembly.files, "missing": assembly.missing}))
        return EXIT_OK
    for name, text in assembly.files.items():
        print(f"{_title(name)}\n{text.rstrip()}\n")
    for line in assembly.missing:
        click.echo(line, err=True)
    return EXIT_OK


def _head(row: JobRow) -> list[str]:
    when = datetime.fromtimestamp(row.created, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    lines = [f"job {row.id}, {row.options.kind.value}, {row.state.value}, {when}, policy {row.options.policy}"]
    lines.append(f"{row.task.path}:{row.task.class_name}, numerics {row.task.numerics.value}")
    if row.task.session:
        lines.append(f"{row.task.class_name} was typed into {row.task.session}")
    if row.error:
        lines.append(f"error: {row.error}")
    if row.next_step:
        lines.append(f"try: {row.next_step}")
    return [*lines, "", *report(row.result)] if row.result is not None else lines


def _evaluations(steps: tuple[Step, ...], most: int | None) -> list[str]:
    # Once each: several conversations with a model may have the same idea.
    evaluations = {
        (evaluation.candidate, evaluation.tier): (step.turn, candidate, evaluation)
        for step in reversed(steps)
        for candidate, evaluation in zip(step.candidates, step.evaluations, strict=True)
    }
    if not evaluations:
        return []
    pairs = sorted(evaluations.values(), key=lambda pair: _order(pair[2]))
    rows = [_cells(*pair) for pair in pairs[:most]]
    left_out = len(pairs) - len(rows)
    lines = ["", _title("Evaluations of the search (quick tier), fastest first")]
    lines += table(("turn", "candidate", "outcome", "time", "vs compile", "schedule or message"), rows)
    return lines + ([f"and {left_out} more (--all)"] if left_out else [])


def _order(evaluation: Evaluation) -> float:
    return evaluation.timing.candidate_ms if evaluation.correct and evaluation.timing else float("inf")


def _cells(turn: int, candidate: Candidate, evaluation: Evaluation) -> tuple[str, ...]:
    timing = evaluation.timing
    return (
        str(turn),
        evaluation.candidate[:8],
        evaluation.outcome.value.replace("_", " "),
        milliseconds(timing.candidate_ms) if timing else "",
        times(timing.speedup_vs_compile) if timing and timing.speedup_vs_compile else "",
        candidate.plan.schedule if evaluation.correct else evaluation.message,
    )


def _graph(row: JobRow) -> list[str]:
    text = _artifact(row, "graph.txt")
    return ["", _title("Graph"), text.rstrip()] if text else []


def _sources(row: JobRow) -> list[str]:
    names = (
        [name for name in row.result.artifacts if name.endswith((".cu", ".cuh", ".cpp", ".h"))] if row.result else []
    )
    lines: list[str] = []
    for name in names:
        lines += ["", _title(name), _artifact(row, name).rstrip()]
    return lines


def _artifact(row: JobRow, name: str) -> str:
    path = row.result.artifacts.get(name) if row.result else None
    return Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else ""


def _title(text: str) -> str:
    return styled(text, bold=True)
