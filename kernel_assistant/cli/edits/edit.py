"""The commands `kernel-assistant apply|undo|export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_assistant.apply import KINDS
from kernel_assistant.apply.conditions import runs_when, written_provenances
from kernel_assistant.cli.common import json_option, open_store, settings_for
from kernel_assistant.cli.edits.compare import PAIRS, compare_program
from kernel_assistant.cli.text import colourful, say_warning, styled
from kernel_assistant.errors import EXIT_OK, UsageError
from kernel_assistant.remote.elsewhere import cannot_run_here
from kernel_assistant.session.class_edits import apply_jobs, jobs_to_apply
from kernel_assistant.session.edits import export_job, find_job, find_place, undo_at
from kernel_assistant.session.programs import scan_of

if TYPE_CHECKING:
    from kernel_assistant.apply import ApplyResult, UndoResult
    from kernel_assistant.records.scan import Scan

_dry_run = click.option("--dry-run", is_flag=True, help="Preview: nothing is changed.")


@click.command("apply")
@click.argument("what", metavar="JOB|FILE[:CLASS]|SCAN:CLASS")
@_dry_run
@click.option("--force", is_flag=True, help="Permission to apply where no gain was confirmed.")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of yours that is changed instead: kernels_for_LIBRARY is written beside it and imported there.",
)
@click.option("--compare", is_flag=True, help="Times of the scanned program without and with kernels, afterwards.")
@json_option
def apply_command(what: str, dry_run: bool, force: bool, into: Path | None, compare: bool, as_json: bool) -> int:
    """Write the kernels of JOB (a number or `last`), or of the newest improved job of FILE, into the user's file.

    Where a scan recorded several configurations of a class, `last`, FILE:CLASS and SCAN:CLASS take the newest job of
    each; a number takes that job alone.

    A package STEM_kernels is written beside the file, and a few lines into it. A class of an installed library is
    replaced from outside: kernels_for_LIBRARY is written into this folder, and importing it puts the kernels in.
    `undo` takes everything back.
    """
    if compare and (dry_run or as_json):
        raise UsageError("--compare times what is applied", "kernel-assistant compare has a --json of its own")
    settings = settings_for(None)
    store = open_store(settings)
    chosen = jobs_to_apply(store, what, settings, force=force)
    done, warnings = apply_jobs(store, chosen, dry_run=dry_run, force=force, into=into)
    results, rows = [one.result for one in done], [one.row for one in done]
    applied = results[-1]
    for warning in dict.fromkeys([*warnings, *filter(None, map(cannot_run_here, rows))]):
        say_warning(warning)
    if as_json:
        print(json.dumps(_applied(results, [row.id for row in rows], dry_run)))
        return EXIT_OK
    print(_coloured(results[0].diff), end="")
    verb = "would be" if dry_run else "is"
    package = f"{applied.package.name}/ ({len(applied.files)} files)"
    several = f", jobs {', '.join(row.id for row in rows)}" if len(results) > 1 else ""
    print(f"{applied.class_name} in {applied.source} {verb} served by {package}{several}")
    if applied.import_line:
        print(f"add this line to your program: {applied.import_line}")
    if not dry_run:
        print(f"commit {applied.package.name}/ together with the file: without it the kernels are not there")
        print(f"take it back with: kernel-assistant undo {_named(applied)}")
        print(_conditions(applied))
        scan = scan_of(rows[-1].task, settings)
        if scan is not None and not compare:
            print(f"time the program without and with kernels: kernel-assistant compare {scan.id}")
        if compare:
            return _compared(scan, applied)
    return EXIT_OK


def _compared(scan: Scan | None, applied: ApplyResult) -> int:
    if scan is None:
        raise UsageError(f"no scan knows a program that uses {applied.class_name}", "kernel-assistant scan -- COMMAND")
    return compare_program(scan, PAIRS, as_json=False)


@click.command("undo")
@click.argument("what", metavar="[JOB|FILE[:CLASS]]", default="")
@_dry_run
@json_option
def undo_command(what: str, dry_run: bool, as_json: bool) -> int:
    """Take applied kernels out of FILE, or of the file that JOB was applied to; without either, what was applied last
    is taken back. Other changes since then stay.

    For a class of an installed library FILE is the folder kernels_for_LIBRARY, or the file that `apply --into` named.
    """
    store = open_store(settings_for(None))
    undone = undo_at(store, find_place(store, what), dry_run=dry_run)
    if as_json:
        print(json.dumps(_undone(undone, dry_run)))
        return EXIT_OK
    print(_coloured(undone.diff), end="")
    print(_words(undone, dry_run))
    return EXIT_OK


def _conditions(applied: ApplyResult) -> str:
    """Lines that say which calls run the kernels of the class, as the guards of the kernels check it."""
    return "\n".join(map(runs_when, written_provenances(applied.package, applied.class_name)))


def _named(applied: ApplyResult) -> Path:
    """The argument for `undo`: the file, or the package `kernels_for_…` for a class of an installed library."""
    return applied.package if applied.package.name.startswith("kernels_for_") else applied.source


def _words(undone: UndoResult, dry_run: bool) -> str:
    names = ", ".join(undone.classes)
    if dry_run:
        return f"{names} in {undone.source} would be as before"
    if undone.source.suffix != ".py":
        kept = f"; kept, since they were changed: {', '.join(undone.kept)}" if undone.kept else ""
        replaced = "it" if len(undone.classes) == 1 else "them"
        return f"{names}: {undone.source.name} replaces {replaced} no more{kept}"
    state = "byte for byte as before" if undone.restored else "without the kernels; other changes stay"
    kept = f"; kept, since they were changed: {', '.join(undone.kept)}" if undone.kept else ""
    return f"{names}: {undone.source} is {state}{kept}"


def _applied(results: list[ApplyResult], jobs: list[str], dry_run: bool) -> dict[str, object]:
    applied = results[-1]
    return {
        "job": jobs[-1],
        "jobs": jobs,
        "path": str(applied.source),
        "class": applied.class_name,
        "package": str(applied.package),
        "files": list(applied.files),
        "import_line": applied.import_line,
        "diff": results[0].diff,
        "dry_run": dry_run,
    }


def _undone(undone: UndoResult, dry_run: bool) -> dict[str, object]:
    return {
        "path": str(undone.source),
        "classes": list(undone.classes),
        "restored": undone.restored,
        "removed": list(undone.removed),
        "kept": list(undone.kept),
        "diff": undone.diff,
        "dry_run": dry_run,
    }


def _coloured(diff: str) -> str:
    if not colourful(sys.stdout):
        return diff
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return "".join(
        styled(line, fg=colours[line[0]]) if line[:1] in colours else line for line in diff.splitlines(keepends=True)
    )


@click.command("export")
@click.argument("what", metavar="JOB|FILE[:CLASS]")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", "kind", type=click.Choice(KINDS), required=True, help="Form of the kernels.")
@json_option
def export_command(what: str, folder: Path, kind: str, as_json: bool) -> int:
    """Write the kernels of JOB (a number or `last`), or of the newest improved job of FILE, into the new folder DIR.

    kernelbench: one file with ModelNew and its kernels inline, or beside it if they need more than C++, and the
    reference; cuda-agent: a workdir of kernels, bindings and ModelNew; package: a Python package that pip installs.
    None of them needs this tool.
    """
    store = open_store(settings_for(None))
    row = find_job(store, what)
    exported = export_job(row, kind, folder.absolute())
    for warning in exported.warnings:
        say_warning(f"verify would refuse it: {warning}")
    if as_json:
        files = [str(path) for path in exported.files]
        print(json.dumps({"job": row.id, "form": kind, "files": files, "warnings": list(exported.warnings)}))
        return EXIT_OK
    print(f"{row.task.class_name} is in {exported.files[0]} ({len(exported.files)} files)")
    return EXIT_OK
