"""The process that sends requests for suggestions to the model. It is separate, because a model client would add 27
MB to the server.

Started by `model.py` as a module. It takes pickled (settings, request) pairs on its standard input and answers each
with a line of JSON: `{"content"}`, `{"cancelled": true}` or `{"kind", "cause", "next"}`. A message that arrives during
a reply, `None` or the next request, cancels the reply. The process ends when its input ends, or when it was idle for
two minutes.
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
from kernel_assistant.policy.connect import ModelConnection, connect
from kernel_assistant.policy.embedded import FirstReplyCache
from kernel_assistant_lsp.features.unsuggested import tasks_alone

#: Idle seconds before the process ends. A restart takes half a second, longer with an embedded model.
_IDLE_S = 120.0
_END = object()


class SuggestionWriter:
    """Answers requests for suggestions. Keeps the connection to the model between requests, because connecting sends a
    request to the endpoint."""

    def __init__(self) -> None:
        self._known: tuple[Settings, ModelConnection] | None = None

    def answer(self, settings: Settings, request: Request, gone: Callable[[], bool]) -> dict[str, Any]:
        try:
            connection = self._connection(settings)
            if connection.compact:
                raise tasks_alone()
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

    def _connection(self, settings: Settings) -> ModelConnection:
        if self._known is None or self._known[0] != settings:
            self._known = settings, connect(settings, settings.endpoint, settings.model)
        # A new cache for each request: the same question gets the same answer.
        return replace(self._known[1], first=FirstReplyCache())


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to the log
    asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    writer = SuggestionWriter()
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
