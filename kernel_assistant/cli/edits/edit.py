"""The commands `kernel-assistant apply|undo`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_assistant.apply.conditions import runs_when, written_provenance
from kernel_assistant.cli.common import json_option, open_store, settings_for
from kernel_assistant.cli.text import colourful, say_warning, styled
from kernel_assistant.errors import EXIT_OK
from kernel_assistant.remote.elsewhere import cannot_run_here
from kernel_assistant.session.edits import apply_job, find_job, find_place, undo_at

if TYPE_CHECKING:
    from kernel_assistant.apply import ApplyResult, UndoResult

_dry_run = click.option("--dry-run", is_flag=True, help="Preview: nothing is changed.")


@click.command("apply")
@click.argument("what", metavar="JOB|FILE[:CLASS]")
@_dry_run
@click.option("--force", is_flag=True, help="Permission to apply where no gain was confirmed.")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of yours that is changed instead: kernels_for_LIBRARY is written beside it and imported there.",
)
@json_option
def apply_command(what: str, dry_run: bool, force: bool, into: Path | None, as_json: bool) -> int:
    """Write the kernels of JOB (a number or `last`), or of the newest improved job of FILE, into the user's file.

    A package STEM_kernels is written beside the file, and a few lines into it. A class of an installed library is
    replaced from outside: kernels_for_LIBRARY is written into this folder, and importing it puts the kernels in.
    `undo` takes everything back.
    """
    store = open_store(settings_for(None))
    row = find_job(store, what)
    applied, warnings = apply_job(store, row, dry_run=dry_run, force=force, into=into)
    for warning in (*warnings, *filter(None, (cannot_run_here(row),))):
        say_warning(warning)
    if as_json:
        print(json.dumps(_applied(applied, row.id, dry_run)))
        return EXIT_OK
    print(_coloured(applied.diff), end="")
    verb = "would be" if dry_run else "is"
    package = f"{applied.package.name}/ ({len(applied.files)} files)"
    print(f"{applied.class_name} in {applied.source} {verb} served by {package}")
    if applied.import_line:
        print(f"add this line to your program: {applied.import_line}")
    if not dry_run:
        print(f"commit {applied.package.name}/ together with the file: without it the kernels are not there")
        print(f"take it back with: kernel-assistant undo {_named(applied)}")
        print(_conditions(applied))
    return EXIT_OK


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
    """Which calls the new kernels serve, by their guard."""
    return runs_when(written_provenance(applied.package, applied.class_name))


def _named(applied: ApplyResult) -> Path:
    """The argument for `undo`: the file, or the package of a class that is replaced from outside."""
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


def _applied(applied: ApplyResult, job: str, dry_run: bool) -> dict[str, object]:
    return {
        "job": job,
        "path": str(applied.source),
        "class": applied.class_name,
        "package": str(applied.package),
        "files": list(applied.files),
        "import_line": applied.import_line,
        "diff": applied.diff,
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
