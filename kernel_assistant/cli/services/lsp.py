"""`kernel-assistant lsp`: the language server for editors."""

from __future__ import annotations

import importlib

import click

from kernel_assistant.errors import EXIT_OK


@click.command("lsp")
@click.option("--stdio", is_flag=True, help="Standard input and output: the default.")
@click.option("--tcp", type=click.IntRange(0, 65535), metavar="PORT", help="Port on 127.0.0.1 instead, for one client.")
def lsp_command(stdio: bool, tcp: int | None) -> int:
    """Serve an editor: lenses, actions, hints and jobs for the nn.Module classes of its files."""
    # By name: front ends are above the command line's layer and not of its package.
    importlib.import_module("kernel_assistant_lsp.main").serve(tcp)
    return EXIT_OK
