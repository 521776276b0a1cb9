"""The program on a remote machine once this tool is installed: `python -m kernel_assistant.remote.server FOLDER`.

It reads one frame with a method and its parameters from stdin, and writes one frame with the answer to stdout. After
the answer to `relay`, stdin and stdout carry the protocol of the session host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import InternalError, KernelAssistantError, MissingError
from kernel_assistant.events import encode_event
from kernel_assistant.records import to_builtins
from kernel_assistant.session.client import Client
from kernel_assistant.session.hosting.event_log import log_path, recorded_events
from kernel_assistant.session.start import find_host, start_host
from kernel_assistant.session.wire import error_to_wire
from kernel_assistant.store import Store
from kernel_assistant.worker.frames import read_frame, write_frame

_SPARE_BYTES = 256 << 20

Blobs = tuple[bytes, ...]


class RemoteServer:
    """The methods that a client can call. `settings` come from the client; the user's own settings on this machine
    are ignored."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._folder = folder
        environment = {"KERNEL_ASSISTANT_HOME": str(folder / "home"), "HOME": os.environ.get("HOME", "/")}
        self.settings: Settings = resolve(None, settings, environment)[0]

    def open(self, path: str) -> tuple[dict[str, Any], Blobs]:
        """Checks everything that a job for the file at `path` needs, before it is queued. Returns a dict with target,
        device and python (the interpreter). Raises MissingError or UsageError if something is missing."""
        from kernel_assistant.sandbox.choose import choose
        from kernel_assistant.source.interpreter import find_interpreter
        from kernel_assistant.targets import cpu, cuda
        from kernel_assistant.targets.detect import detect

        device = detect(self.settings.target)
        python = find_interpreter(path, self.settings.python or None)
        (cuda if device.target == "cuda" else cpu).compiler()
        choose(self.settings.sandbox)
        free = shutil.disk_usage(self._folder).free
        if free < _SPARE_BYTES:
            raise MissingError(f"{free >> 20} MiB are free in {self._folder}", "free some, or --remote-dir DIR")
        return {"target": device.target, "device": device.name, "python": python.path}, ()

    def fetch(self, job: str) -> tuple[dict[str, Any], Blobs]:
        """Returns everything that the store has of `job`. The blobs are the files of its result, followed by its
        events."""
        store = Store(self.settings.state_dir)
        row = store.job(job)
        folder = self.settings.jobs_dir / row.id / "result"
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
        answer = {
            "row": to_builtins(row),
            "steps": to_builtins(store.steps(row.id)),
            "transcripts": to_builtins(store.transcripts.of(row.id)),
            "files": [path.relative_to(folder).as_posix() for path in files],
        }
        events = recorded_events(log_path(self.settings.jobs_dir, row.id))
        return answer, (*(path.read_bytes() for path in files), b"\n".join(map(encode_event, events)))

    def doctor(self) -> tuple[dict[str, Any], Blobs]:
        from kernel_assistant.session.doctor import examine

        answer: dict[str, Any] = to_builtins(examine(self.settings, self._folder / "projects"))
        return answer, ()

    def stop(self) -> tuple[dict[str, Any], Blobs]:
        """Ends the session host, whatever version of this tool it runs. Returns `stopped`: whether one was running."""
        return {"stopped": Client(self.settings).shutdown()}, ()

    def relay(self, start: bool, requests: BinaryIO, answers: BinaryIO) -> None:
        """Connects this process's stdin and stdout with the session host. With `start`, starts the session host
        first."""
        if start:
            start_host(self.settings)
        stream = find_host(self.settings)
        write_frame(answers, {"result": {"found": stream is not None}})
        if stream is not None:
            _join(stream, requests.fileno(), answers.fileno())


def _join(stream: socket.socket, requests: int, answers: int) -> None:
    """Copies bytes in both directions between the session host and our stdin and stdout, until one side closes its
    connection."""
    threading.Thread(target=_pass_on, args=(requests, stream), daemon=True).start()
    with contextlib.suppress(OSError):
        while part := stream.recv(1 << 16):
            while part:
                part = part[os.write(answers, part) :]


def _pass_on(requests: int, stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := os.read(requests, 1 << 16):
            stream.sendall(part)
        # Both ways: the host sees that we are gone, and the other thread ends.
        stream.shutdown(socket.SHUT_RDWR)


def main() -> int:
    """Runs the process: answers one request. Returns the exit code, which is always 0, because errors are part of the
    answer."""
    # Unbuffered: what comes after the first frame is for the session host.
    requests, answers = os.fdopen(0, "rb", 0), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a print would break the protocol
    frame = read_frame(requests)
    if frame is None:
        return 0
    method, params = frame[0]["method"], frame[0]["params"]
    try:
        server = RemoteServer(Path(sys.argv[1]), frame[0]["settings"])
        if method == "relay":
            server.relay(params["start"], requests, answers)
            return 0
        methods: dict[str, Callable[..., tuple[dict[str, Any], Blobs]]] = {
            "open": server.open,
            "fetch": server.fetch,
            "doctor": server.doctor,
            "stop": server.stop,
        }
        result, blobs = methods[method](**params)
        write_frame(answers, {"result": result}, blobs)
    except KernelAssistantError as error:
        write_frame(answers, {"error": error_to_wire(error)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        failure = InternalError(f"internal {type(error).__name__}: {error}", "please report this")
        write_frame(answers, {"error": error_to_wire(failure)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
