"""The command `kernel-assistant lsp`: serves one editor."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, BinaryIO, cast

import kernel_assistant
from kernel_assistant_lsp.initial_request import InitialRequest, greet

if TYPE_CHECKING:
    from kernel_assistant_lsp.server import Server


def serve(port: int | None) -> None:
    """Serve one client, on the standard streams or on port `port` of 127.0.0.1, then end the process."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    greeted = greet(sys.stdin.buffer, sys.stdout.buffer, kernel_assistant.__version__) if port is None else None
    # Switch threads often, so that parsing in a thread does not delay the event loop.
    sys.setswitchinterval(0.001)
    server = _server()
    if greeted is None:
        server.start_tcp("127.0.0.1", port or 0)
    else:
        _serve_stdio(server, greeted)
    server.end_early()
    # Do not wait for threads that wait for a host or the store; they have nothing to save.
    os._exit(0)


def _serve_stdio(server: Server, greeted: InitialRequest) -> None:
    server.answered = greeted.identity
    server.start_io(cast("BinaryIO", greeted.stdin))


def _server() -> Server:
    from kernel_assistant_lsp.server import Server

    for name in ("pygls.protocol.json_rpc", "pygls.io_", "pygls.server"):
        logging.getLogger(name).addFilter(_is_ours)
    return Server()


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether to write a record to the log. Errors of the client are left out: they are answered, and a traceback of
    them says nothing about this server."""
    from pygls.exceptions import JsonRpcException

    known = record.exc_info is not None and isinstance(
        record.exc_info[1], (JsonRpcException, ValueError, RecursionError)
    )
    return not known and not str(record.msg).startswith("Unable to deserialize")
