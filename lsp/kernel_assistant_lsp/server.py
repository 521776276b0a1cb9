"""The language server with all its requests."""

from __future__ import annotations

import logging
from json import JSONDecodeError
from typing import Any

from lsprotocol.types import ErrorCodes
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

import kernel_assistant
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.protocol import Protocol
from kernel_assistant_lsp.requests import register_all

_log = logging.getLogger(__name__)


class Server(LanguageServer):
    """The language server. `context` is the state that the requests share."""

    def __init__(self) -> None:
        super().__init__("kernel-assistant", kernel_assistant.__version__, protocol_cls=Protocol, max_workers=2)
        protocol = self.protocol
        assert isinstance(protocol, Protocol)
        self._answering = protocol
        self.context = Context(self, protocol.documents)
        register_all(self.context)

    @property
    def answered(self) -> int | str | None:
        """Id of the `initialize` request that was answered before the server started; None if there is none."""
        return self._answering.answered

    @answered.setter
    def answered(self, identity: int | str | None) -> None:
        self._answering.answered = identity

    def end_early(self) -> None:
        """Stop the programs that run for the client, which has disconnected, and finish work that must be completed,
        such as deleting the kernels of a saved file.
        """
        self._answering.end_early()
        self.context.finish()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log an error instead of showing it: a message box for an unexpected notification would disturb
        the user."""
        if isinstance(error, (UnicodeDecodeError, JSONDecodeError, RecursionError)):
            self._answering.refuse(None, ErrorCodes.ParseError, f"a message is no JSON: {error}")
        elif not isinstance(error, JsonRpcException):
            _log.error("%s", error)
