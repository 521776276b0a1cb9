"""One HTTP request that can be cancelled at any moment."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from kernel_assistant.errors import Cancelled
from kernel_assistant.serving.errors import ContextFullError, EngineError

_CHECK_EVERY = 0.1
_SILENCE = 600.0


def ask(url: str, key: str, path: str, body: dict[str, Any], cancelled: Callable[[], bool]) -> dict[str, Any]:
    """Sends a POST with the JSON `body` to llama.cpp's server and returns the answer. If `cancelled()` becomes true,
    closes the connection, and the server stops.

    Raises Cancelled, ContextFullError, EngineError, and OSError or HTTPException if there is no answer.
    """
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_SILENCE)
    answers: queue.SimpleQueue[tuple[int, bytes] | Exception] = queue.SimpleQueue()
    thread = threading.Thread(target=_send, args=(connection, key, path, body, answers), daemon=True)
    thread.start()
    try:
        answer = _await(answers, cancelled)
    finally:
        _hang_up(connection)
        thread.join()
    if isinstance(answer, Exception):
        raise answer
    return _checked(*answer)


def _await(
    answers: queue.SimpleQueue[tuple[int, bytes] | Exception], cancelled: Callable[[], bool]
) -> tuple[int, bytes] | Exception:
    while True:
        if cancelled():
            raise Cancelled("cancelled while the model was writing")
        with suppress(queue.Empty):
            return answers.get(timeout=_CHECK_EVERY)


def _send(
    connection: http.client.HTTPConnection,
    key: str,
    path: str,
    body: dict[str, Any],
    answers: queue.SimpleQueue[tuple[int, bytes] | Exception],
) -> None:
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection.request("POST", path, json.dumps(body).encode(), headers)
        response = connection.getresponse()
        answers.put((response.status, response.read()))
    except (OSError, http.client.HTTPException) as error:
        answers.put(error)


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Closes the connection, which wakes the thread that waits for it."""
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    connection.close()


def _checked(status: int, data: bytes) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise EngineError(f"llama.cpp answered no JSON (status {status})", "report this") from error
    failure = document.get("error")
    if status == 200 and failure is None:
        return document
    failure = failure or {}
    if failure.get("type") == "exceed_context_size_error":
        raise ContextFullError(f"the prompt has {failure.get('n_prompt_tokens')} tokens, {failure.get('n_ctx')} fit")
    raise EngineError(f"llama.cpp refused: {failure.get('message')}", "report this")
