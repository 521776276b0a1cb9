"""`kernel-assistant draft FILE:CLASS`: drafts inputs for a class that declares none."""

from __future__ import annotations

import json

import click

from kernel_assistant.cli.common import json_option
from kernel_assistant.errors import EXIT_OK
from kernel_assistant.source.draft import draft


@click.command("draft")
@click.argument("file", metavar="FILE[:CLASS]")
@json_option
def draft_command(file: str, as_json: bool) -> int:
    """Print the comment that declares the inputs of a class, to be read, mended and pasted above it. Nothing is run.

    Sizes and constructor arguments come from the signatures and from literal calls in the project; what nothing tells
    is a guess and marked as one.
    """
    drafted = draft(file)
    if as_json:
        print(json.dumps({"class": drafted.class_name, "text": drafted.text, "origin": drafted.origin}))
    else:
        print(f"# {drafted.class_name}: {drafted.origin}\n{drafted.text}", end="")
    return EXIT_OK
