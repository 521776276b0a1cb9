"""A shell in the sandbox: without network and device, and with write access only to the workspace."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kernel_assistant.agent.tools.base import Tool, ToolContext, ToolError, shortened
from kernel_assistant.errors import Cancelled, SandboxError
from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.contract import SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.paths import compiler_paths, toolkit_paths
from kernel_assistant.sandbox.run import Completed, run
from kernel_assistant.targets import cpu, cuda

SECONDS = 30.0
MAX_OUTPUT = 8_000


class ShellArguments(Record, frozen=True, kw_only=True):
    """Run a bash command in the workspace, in a sandbox without network and without a GPU, for at most 30 seconds. The
    compiler is there."""

    command: Annotated[str, Meta(description="bash command line")]


def run_shell(arguments: ShellArguments, context: ToolContext) -> str:
    done = run_inside(("/bin/bash", "-c", arguments.command), context, SECONDS)
    ending = ", timed out" if done.timed_out else f", too much {done.exceeded}" if done.exceeded else ""
    text = (done.stdout + done.stderr).decode(errors="replace")
    return f"exit {done.returncode}{ending}\n{shortened(text, MAX_OUTPUT)}".rstrip()


def run_inside(argv: tuple[str, ...], context: ToolContext, seconds: float) -> Completed:
    """Runs a command in the workspace, in the sandbox. Waits while something is measured, because the command takes
    processor time.

    Raises Cancelled if the user cancels, ToolError if the sandbox fails.
    """
    workspace = str(context.workspace.folder)
    gpu = context.device.target == "cuda"
    spec = SandboxSpec(
        argv=argv,
        workspace=workspace,
        cwd=workspace,
        read_only=toolkit_paths(cuda.compiler()) if gpu else compiler_paths(cpu.compiler()),
        allow_fork=True,
        limits=SandboxLimits(cpu_seconds=60, processes=64, file_bytes=64 << 20, tmp_bytes=256 << 20),
    )
    try:
        with context.device_lock:
            done = run(context.sandbox, spec, timeout=seconds, max_output=MAX_OUTPUT * 4, cancel=context.cancel)
    except SandboxError as error:
        raise ToolError(f"the sandbox could not be set up: {error.cause}") from error
    if done.cancelled:
        raise Cancelled("cancelled while a command ran")
    return done


TOOLS = (Tool("shell", ShellArguments, run_shell),)
