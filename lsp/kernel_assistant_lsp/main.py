"""`kernel-assistant lsp`."""

from __future__ import annotations

import logging
import os
import sys

from pygls.exceptions import JsonRpcException


def serve(port: int | None) -> None:
    """Serve one client, on the standard streams or on 127.0.0.1, then end the process."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pygls").addFilter(_no_refusals)
    for name in ("pygls.protocol.json_rpc", "pygls.io_"):
        logging.getLogger(name).addFilter(_no_refusals)
    from kernel_assistant_lsp.server import Server

    server = Server()
    if port is None:
        server.start_io()
    else:
        server.start_tcp("127.0.0.1", port)
    # Threads may be waiting for a host or a store; there is nothing of theirs to save.
    sys.stdout.flush()
    os._exit(0)


def _no_refusals(record: logging.LogRecord) -> bool:
    """What was answered with a reason is no error of ours and needs no traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], JsonRpcException))
