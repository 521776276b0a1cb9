"""Sends requests to the configured model through a separate process (`model_process.py`), which starts at first use."""

from __future__ import annotations

import json
import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import kernel_assistant
import kernel_assistant_lsp
from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import ModelClient, PolicyError, Request
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.turn import turn

_LOOK_S = 0.05
#: Seconds for a cancelled reply to stop; a process that takes longer is killed.
_END_S = 2.0


class ModelProcess:
    """The process that sends the server's requests to the model. It handles one request at a time. Thread-safe."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def client(self, settings: Settings) -> ModelClient:
        return _Client(self, settings)

    def complete(self, settings: Settings, request: Request, cancelled: Callable[[], bool]) -> str:
        """Return the text of the model's reply. Raises Cancelled and PolicyError."""
        with turn(self._turn, cancelled, "another suggestion was being written"):
            kept, process = self._process, self._started()
            text = self._complete(process, settings, request, cancelled)
            if text is None and process is kept:  # the old process died unnoticed: try once more with a new one
                text = self._complete(self._started(), settings, request, cancelled)
        if text is None:
            raise PolicyError("engine", "the process that asks the model has ended", "see the server's log")
        return text

    def _complete(
        self, process: subprocess.Popen[bytes], settings: Settings, request: Request, cancelled: Callable[[], bool]
    ) -> str | None:
        """Send one request and return the text of the reply; None if the process has ended. Raises Cancelled and
        PolicyError."""
        _send(process, (settings, request))
        line = _line(process, cancelled, None)
        if line is None:
            _send(process, None)
            if _line(process, lambda: False, time.monotonic() + _END_S) is None:
                self._end(process)
            raise Cancelled("cancelled while the model was writing")
        if not line:
            self._end(process)
            return None
        answer = json.loads(line)
        if "content" not in answer:
            raise PolicyError(answer["kind"], answer["cause"], answer["next"])
        return str(answer["content"])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            # -P: do not import modules from the folder in which the server was started.
            paths = [str(Path(package.__path__[0]).parent) for package in (kernel_assistant, kernel_assistant_lsp)]
            known = os.environ.get("PYTHONPATH")
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kernel_assistant_lsp.model_process"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths + ([known] if known else []))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        self._process = None


class _Client:
    """A `ModelClient` that uses the shared process. Closing the client does not end the process."""

    def __init__(self, process: ModelProcess, settings: Settings) -> None:
        self._process, self._settings = process, settings
        self.name, self.context_tokens = settings.model or settings.endpoint, 0

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        return Message(role="assistant", content=self._process.complete(self._settings, request, cancelled))

    def close(self) -> None:
        """Do nothing: the process is shared."""


def _send(process: subprocess.Popen[bytes], message: object) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(pickle.dumps(message))
        process.stdin.flush()
    except OSError:
        pass  # the process has ended; the next read reports it


def _line(process: subprocess.Popen[bytes], cancelled: Callable[[], bool], deadline: float | None) -> bytes | None:
    """Return the next line of output; None after cancellation or the deadline, b"" if the process has ended."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not selector.select(_LOOK_S):
            if cancelled() or (deadline is not None and time.monotonic() >= deadline):
                return None
    return process.stdout.readline()
