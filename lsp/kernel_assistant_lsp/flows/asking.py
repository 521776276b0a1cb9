"""Asks questions to the user of a client that shows no dialogs of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lsprotocol.types import MessageActionItem, MessageType, ShowMessageRequestParams
from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.dispatch import run_command


async def ask(context: Context, message: str, choices: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
    """Show `message` with the titles of `choices`, and run the command behind the title that the user chooses."""
    actions = [MessageActionItem(title=title) for title in choices]
    params = ShowMessageRequestParams(type=MessageType.Info, message=message, actions=actions)
    chosen = await context.server.window_show_message_request_async(params)
    if chosen is not None and chosen.title in choices:
        command, argument = choices[chosen.title]
        await run_command(context, command, (argument,))


@contextmanager
def errors_shown(context: Context) -> Iterator[None]:
    """Shows exceptions of the `with` block to the user, for work in the background, where no request of the client
    waits for an answer."""
    try:
        yield
    except JsonRpcException as error:
        context.tell(error.message, MessageType.Error)
    except KernelAssistantError as error:
        context.tell(error.cause, MessageType.Error)
