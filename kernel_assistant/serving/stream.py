"""Lines of an HTTP answer, read in a thread so that whoever waits can be cancelled at any moment."""

from __future__ import annotations

import http.client
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from kernel_assistant.errors import Cancelled

_LOOK_EVERY = 0.1


class Lines:
    """`ask` sends the request and gives the answer: in the thread too, since a long prompt delays it."""

    def __init__(self, ask: Callable[[], http.client.HTTPResponse], connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._queue: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, args=(ask,), daemon=True)

    def until(self, cancelled: Callable[[], bool]) -> Iterator[bytes]:
        """Each line without its end. Raises Cancelled, and whatever went wrong while reading."""
        self._thread.start()
        try:
            while True:
                try:
                    item = self._queue.get(timeout=_LOOK_EVERY)
                except queue.Empty:
                    item = b""
                if cancelled():
                    raise Cancelled("cancelled while the model was writing")
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                if item:
                    yield item
        finally:
            self._hang_up()

    def _read(self, ask: Callable[[], http.client.HTTPResponse]) -> None:
        try:
            for line in ask():
                self._queue.put(line.rstrip(b"\r\n"))
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits
            self._queue.put(error)
        else:
            self._queue.put(None)

    def _hang_up(self) -> None:
        """Wakes the thread, wherever it waits on the connection."""
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=5)
