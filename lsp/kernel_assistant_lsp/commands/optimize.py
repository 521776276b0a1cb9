"""Have kernels written for a class, from its text as it is in the editor. Answers at once."""

from __future__ import annotations

from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind
from kernel_assistant_lsp.commands.arguments import class_of
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.names import INPUTS
from kernel_assistant_lsp.start import start


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"job"}`; for a class that says nowhere how it is called `{"job": null, "needs": "inputs", …}` with choices."""
    return await submit(context, argument, JobKind.optimize)


async def submit(context: Context, argument: dict[str, Any], kind: JobKind) -> dict[str, Any]:
    from kernel_assistant.session.prepare import prepare
    from kernel_assistant.source.declared import NoInputsError

    snapshot, name = class_of(context, argument)
    settings = context.settings(snapshot.path)
    spec = f"{snapshot.path}:{name}"

    def prepared() -> Any:
        return prepare(
            spec, settings, text=snapshot.text, kind=kind, inputs=settings.inputs, elsewhere=bool(settings.host)
        )

    try:
        task, options = await in_thread(prepared)
    except NoInputsError as error:
        needed = _needed(snapshot.uri, name, error)
        if context.abilities.messages_with_choices:
            context.spawn(_offer(context, needed))
        return needed
    return await start(context, task, options, settings)


def _needed(uri: str, name: str, error: Any) -> dict[str, Any]:
    argument = {"uri": uri, "class": name}
    return {
        "job": None,
        "needs": "inputs",
        "message": error.cause,
        "nextStep": error.next_step,
        "choices": [
            {"title": "Draft a stub", "command": INPUTS, "arguments": [{**argument, "how": "draft"}]},
            {"title": "Record them from a program", "command": INPUTS, "arguments": [{**argument, "how": "record"}]},
        ],
    }


async def _offer(context: Context, needed: dict[str, Any]) -> None:
    """The same choice for a client that shows none of its own."""
    from kernel_assistant_lsp.commands import run_command

    titles = [choice["title"] for choice in needed["choices"]]
    params = types.ShowMessageRequestParams(
        type=types.MessageType.Info,
        message=f"{needed['message']}. {needed['nextStep']}",
        actions=[types.MessageActionItem(title=title) for title in titles],
    )
    try:
        chosen = await context.server.window_show_message_request_async(params)
        for choice in needed["choices"]:
            if chosen is not None and choice["title"] == chosen.title:
                await run_command(context, choice["command"], tuple(choice["arguments"]))
    except JsonRpcException as error:
        context.tell(error.message, types.MessageType.Error)
