"""`workspace/executeCommand`: finds the file of a command in `commands/` and runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant_lsp import names
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.protocol import refused

Run = Callable[[Context, dict[str, Any]], Awaitable[Any]]

#: Command → its file in `commands/`.
COMMANDS = {
    names.OPTIMIZE: "optimize",
    names.CANCEL: "cancel",
    names.APPLY: "apply",
    names.UNDO: "undo",
    names.DISCARD: "discard",
    names.VERIFY: "verify",
    names.CONFIRM: "confirm",
    names.PROFILE: "profile",
    names.SHOW: "show",
    names.SCAN: "scan",
    names.IGNORE: "ignore",
    names.INPUTS: "inputs",
    names.JOBS: "jobs",
    names.DIFF: "diff",
    names.ASSEMBLY: "assembly",
    names.CLASSES: "classes",
    names.KERNELS: "kernels",
    names.SAY: "say",
    names.TRANSCRIPT: "transcript",
}


async def run_command(context: Context, name: str, arguments: tuple[Any, ...]) -> Any:
    """Run command `name` and return its answer. Raises JsonRpcException, with the next step in `data`, if it fails."""
    if not context.trusted:
        raise refused("this workspace is not trusted: nothing is run", {"nextStep": "trust it, then try again"})
    argument = arguments[0] if arguments else {}
    if not isinstance(argument, dict):
        raise JsonRpcException("the first argument must be an object", code=-32602)
    run: Run = import_module(f"kernel_assistant_lsp.commands.{COMMANDS[name]}").run
    try:
        return await run(context, argument)
    except KernelAssistantError as error:
        data = {"kind": type(error).__name__, "nextStep": error.next_step, "exitCode": error.exit_code}
        raise refused(error.cause, data) from error
