"""`workspace/executeCommand`: finds the function of a command in `commands/` and runs it."""

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

#: Command → its file in `commands/`, and its function there.
COMMANDS = {
    names.OPTIMIZE: "optimize.optimize",
    names.CANCEL: "jobs.cancel_job",
    names.APPLY: "edits.apply_kernels",
    names.UNDO: "edits.undo_kernels",
    names.DISCARD: "jobs.discard",
    names.VERIFY: "optimize.verify",
    names.CONFIRM: "jobs.confirm",
    names.PROFILE: "optimize.profile",
    names.SHOW: "results.show_job",
    names.SCAN: "classes.scan",
    names.IGNORE: "classes.ignore",
    names.INPUTS: "classes.give_inputs",
    names.JOBS: "jobs.list_jobs",
    names.DIFF: "results.show_diff",
    names.ASSEMBLY: "results.show_assembly",
    names.CLASSES: "classes.list_classes",
    names.KERNELS: "results.show_kernels",
    names.SAY: "jobs.say",
    names.TRANSCRIPT: "jobs.show_transcript",
}


async def run_command(context: Context, name: str, arguments: tuple[Any, ...]) -> Any:
    """Run command `name` and return its answer. Raises JsonRpcException if the command fails; its `data` has the next
    step."""
    if not context.trusted:
        raise refused("this workspace is not trusted: nothing is run", {"nextStep": "trust it, then try again"})
    argument = arguments[0] if arguments else {}
    if not isinstance(argument, dict):
        raise JsonRpcException("the first argument must be an object", code=-32602)
    file, function = COMMANDS[name].split(".")
    run: Run = getattr(import_module(f"kernel_assistant_lsp.commands.{file}"), function)
    try:
        return await run(context, argument)
    except KernelAssistantError as error:
        data = {"kind": type(error).__name__, "nextStep": error.next_step, "exitCode": error.exit_code}
        raise refused(error.cause, data) from error
