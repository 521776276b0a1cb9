"""The server, built with the official `mcp` package: the list of tools, and how answers and failures are returned."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

import kernel_assistant
from kernel_assistant.errors import Cancelled, KernelAssistantError
from kernel_assistant.mcp import kernels, tools
from kernel_assistant.mcp import parameters as given
from kernel_assistant.mcp.jobs import Report
from kernel_assistant.mcp.parameters import schema_of, takes
from kernel_assistant.records.codec import Record

_log = logging.getLogger(__name__)
_WHAT = """\
Makes PyTorch nn.Module classes faster with generated kernels that are verified against float64 and measured against \
torch.compile on this machine. `hints` reads code, `scan` runs a program and ranks its modules, `profile` times the \
lines of one, `optimize` has kernels written (minutes; progress is told, cancelling keeps nothing applied), `result` \
shows what was found, `confirm` measures in full what a job left unclear, `apply` edits the user's file, `undo` takes \
that back, `check` verifies what is applied again. `draft` drafts inputs for a class without any, `verify` judges a \
candidate of yours, `export` writes kernels in a form of their own."""


@dataclass(frozen=True)
class _Offered:
    parameters: type[Record]
    run: Callable[[Any, Report], Awaitable[tools.Answer]]
    says: str
    reads: bool = True
    destroys: bool = False


_TOOLS = {
    "hints": _Offered(
        given.HintsArguments, tools.hints, "Find slow patterns in module classes of a file or folder, unrun."
    ),
    "scan": _Offered(
        given.ScanArguments,
        tools.scan,
        "Run a Python program and rank its module classes by what kernels could gain. Runs the program; keeps inputs "
        "of its modules for optimize.",
        reads=False,
    ),
    "draft": _Offered(
        given.DraftArguments, tools.draft, "Draft get_inputs and get_init_inputs for a class that declares none, unrun."
    ),
    "profile": _Offered(
        given.ProfileArguments, tools.profile, "Time each line of a module's forward, with kernels, bytes and roofline."
    ),
    "verify": _Offered(
        given.VerifyArguments,
        tools.verify,
        "Judge a candidate against its reference: errors against float64, and times against torch.compile. The "
        "candidate runs in a sandbox.",
    ),
    "optimize": _Offered(
        given.OptimizeArguments,
        tools.optimize,
        "Have kernels written for a module until they beat torch.compile or the budget is spent. Changes no file.",
    ),
    "result": _Offered(given.ResultArguments, tools.result, "What a job found, or how far it is."),
    "jobs": _Offered(given.JobsArguments, tools.jobs, "List jobs: running, waiting, newest."),
    "cancel": _Offered(given.CancelArguments, tools.cancel, "Stop a job and keep what it found.", reads=False),
    "confirm": _Offered(
        given.ConfirmArguments,
        tools.confirm,
        "Verify and measure in full what a job found that was cancelled, or whose gain was not clear.",
    ),
    "apply": _Offered(
        given.ApplyArguments,
        tools.apply,
        "Write a job's kernels into the user's file: a few lines, and a package beside it. `undo` takes it back.",
        reads=False,
        destroys=True,
    ),
    "undo": _Offered(
        given.UndoArguments, tools.undo, "Take applied kernels out of a file.", reads=False, destroys=True
    ),
    "check": _Offered(
        given.CheckArguments, kernels.check, "Verify and time applied kernels again, under what is installed here now."
    ),
    "export": _Offered(
        given.ExportArguments,
        kernels.export,
        "Write a job's kernels into a new folder, in a form that needs nothing of this tool.",
        reads=False,
    ),
}


def make_server() -> Server[Any]:
    return Server(
        "kernel-assistant",
        version=kernel_assistant.__version__,
        instructions=_WHAT,
        on_list_tools=_list,
        on_call_tool=_call,
    )


def serve() -> None:
    """Serve one client on stdin and stdout until it disconnects."""

    async def run() -> None:
        server = make_server()
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(run)


async def _list(context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(
        tools=[
            Tool(
                name=name,
                description=one.says,
                input_schema=schema_of(one.parameters),
                annotations=ToolAnnotations(
                    read_only_hint=one.reads, destructive_hint=one.destroys, open_world_hint=False
                ),
            )
            for name, one in _TOOLS.items()
        ]
    )


async def _call(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
    """Run one tool. Failures are part of the result, so that the agent reads the cause and the next step."""
    offered = _TOOLS.get(params.name)
    if offered is None:
        return _failed(f"there is no tool {params.name!r}", f"the tools are {', '.join(_TOOLS)}")

    async def report(progress: float, message: str) -> None:
        await context.session.report_progress(progress, None, message)

    try:
        wanted = msgspec.convert(params.arguments or {}, offered.parameters)
        return _answer(await offered.run(wanted, report))
    except msgspec.ValidationError as error:
        return _failed(f"{params.name}: {error}", f"{params.name} takes {takes(offered.parameters)}")
    except (Cancelled, KernelAssistantError) as error:
        return _failed(error.cause, error.next_step)
    except Exception as error:  # noqa: BLE001 - the last boundary: one tool's bug must not end the server; logged
        _log.exception("%s broke", params.name)
        failure = tools.unexpected(params.name, error)
        return _failed(failure.cause, failure.next_step)


def _answer(answer: tools.Answer) -> CallToolResult:
    text = json.dumps(answer, indent=1)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=answer)


def _failed(cause: str, next_step: str) -> CallToolResult:
    text = f"{cause}\nnext: {next_step}" if next_step else cause
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
