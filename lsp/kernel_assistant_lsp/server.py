"""The server put together."""

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
    """`context` is what its requests share."""

    def __init__(self) -> None:
        super().__init__("kernel-assistant", kernel_assistant.__version__, protocol_cls=Protocol, max_workers=2)
        protocol = self.protocol
        assert isinstance(protocol, Protocol)
        self._answering = protocol
        self.context = Context(self, protocol.documents)
        register_all(self.context)

    @property
    def answered(self) -> int | str | None:
        """The request to initialize that has its answer already."""
        return self._answering.answered

    @answered.setter
    def answered(self, identity: int | str | None) -> None:
        self._answering.answered = identity

    def end_early(self) -> None:
        """The client has gone: programs that were started for it end too."""
        self._answering.end_early()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """To the log: nobody who types wants a message box for a notification that came out of turn."""
        if isinstance(error, (UnicodeDecodeError, JSONDecodeError)):
            self._answering.refuse(None, ErrorCodes.ParseError, f"a message is no JSON: {error}")
        elif not isinstance(error, JsonRpcException):
            _log.error("%s", error)
