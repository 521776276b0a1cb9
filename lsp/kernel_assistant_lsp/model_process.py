"""The process in which suggestions are written: clients of models are a third of what the server may take.

Started by `model.py` as a module. It takes pickled (settings, request) pairs on its standard input and answers each
with a line of JSON: `{"content"}`, `{"cancelled": true}` or `{"kind", "cause", "next"}`. Whatever comes in the middle
of a reply, `None` or the next request, ends that reply. It ends with its input, or when nobody has asked for a while.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled, KernelAssistantError
from kernel_assistant.policy.client import Request
from kernel_assistant.policy.connect import Connection, connect
from kernel_assistant.policy.embedded import FirstAnswers

#: Loading everything again takes half a second, an embedded model some more.
_IDLE_S = 120.0
_END = object()


class Writer:
    """Remembers the connection, which is made by asking what is served."""

    def __init__(self) -> None:
        self._known: tuple[Settings, Connection] | None = None

    def answer(self, settings: Settings, request: Request, gone: Callable[[], bool]) -> dict[str, Any]:
        try:
            connection = self._connection(settings)
            if connection.compact:
                # Trained to answer the compact prompt of a task; what it says to anything else is noise.
                return {"content": ""}
            client = connection.client(0)
            try:
                return {"content": client.complete(request, gone).content or ""}
            finally:
                client.close()
        except Cancelled:
            return {"cancelled": True}
        except KernelAssistantError as error:
            self._known = None
            return {"kind": getattr(error, "kind", "engine"), "cause": error.cause, "next": error.next_step}

    def _connection(self, settings: Settings) -> Connection:
        if self._known is None or self._known[0] != settings:
            self._known = settings, connect(settings, settings.endpoint, settings.model)
        # The same question again is to have the same answer, not the next likely one.
        return replace(self._known[1], first=FirstAnswers())


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints belongs to the log
    asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    writer = Writer()
    while True:
        try:
            message = asked.get(timeout=_IDLE_S)
        except queue.Empty:
            return
        if message is _END:
            return
        if message is not None:
            settings, request = message
            answer = writer.answer(settings, request, lambda: not asked.empty())
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _read(asked: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            asked.put(pickle.load(sys.stdin.buffer))  # from the server that started this process
        except (EOFError, OSError, pickle.UnpicklingError):
            asked.put(_END)
            return


if __name__ == "__main__":
    main()
