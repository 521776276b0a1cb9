"""`workspace/executeCommand`: runs a command of `commands/` by name."""

from __future__ import annotations

from typing import Any

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.dispatch import COMMANDS, run_command


def register(context: Context) -> None:
    for name in COMMANDS:
        _register(context, name)


def _register(context: Context, name: str) -> None:
    @context.server.command(name)
    async def execute(*arguments: Any) -> Any:
        return await run_command(context, name, arguments)
