"""The command `kernel-assistant mcp`."""

from __future__ import annotations

import logging
import sys

import click

from kernel_assistant.errors import EXIT_OK, MissingError


@click.command("mcp")
@click.option("--stdio", is_flag=True, help="Standard input and output (the only way, and the default).")
def mcp_command(stdio: bool) -> int:
    """Serve coding agents over the Model Context Protocol, on stdin and stdout.

    Set it up in the agent as the command `kernel-assistant mcp`; docs/mcp.md has the lines for each.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        from kernel_assistant.mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        raise MissingError(
            "the package mcp is not installed for kernel-assistant", "pip install 'kernel-assistant[mcp]'"
        ) from error
    serve()
    return EXIT_OK
