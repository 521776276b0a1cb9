"""The state of a running server, for other commands: `server.json`, and a lock that the server holds while it runs."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record, decode, encode
from kernel_assistant.sandbox.tree import is_alive
from kernel_assistant.serving.engine import GRACE
from kernel_assistant.serving.errors import EngineError
from kernel_assistant.serving.supervisor import ServerStatus


class ServerState(Record, frozen=True, kw_only=True):
    """The state of a model server. `source` is the user's name for the model, `model` the name that clients send,
    `context` the most tokens of a conversation, 0 if only the engine knows. Times are in seconds (`started` since
    1970). `cause`, `next_step` and `exit_code` describe a failure."""

    pid: int
    engine: str
    source: str
    url: str
    key: str
    model: str
    status: ServerStatus
    log: str
    started: float
    engine_pid: int = 0
    ready_seconds: float = 0.0
    restarts: int = 0
    cause: str = ""
    next_step: str = ""
    exit_code: int = 0
    context: int = 0


def folder(settings: Settings) -> Path:
    """Returns the folder with state, lock and logs of servers; creates it if necessary."""
    path = settings.state_dir / "serving"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def write_state(settings: Settings, state: ServerState) -> None:
    """Writes the state. Only the user can read it, since it contains the key."""
    path = folder(settings) / "server.json"
    fresh = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode(state))
    fresh.replace(path)


def last_state(settings: Settings) -> ServerState | None:
    """Returns the state of the last server, running or not; None if there was no server, or one of another version."""
    try:
        return decode((settings.state_dir / "serving" / "server.json").read_bytes(), ServerState)
    except FileNotFoundError:
        return None
    except UsageError:
        # The file is from another version.
        return None


def running(settings: Settings) -> ServerState | None:
    """Returns the state of the running server, ready or not; None if there is none."""
    lock = settings.state_dir / "serving" / "server.lock"
    if not lock.exists():
        return None
    with lock.open("r") as file:
        if _take(file):
            return None
    return last_state(settings)


def take_lock(settings: Settings) -> IO[str]:
    """Takes the server's lock, which is held until the returned file is closed. Raises UsageError if a server is
    running."""
    file = (folder(settings) / "server.lock").open("a")
    if not _take(file):
        file.close()
        state = last_state(settings)
        what = f" ({state.source}, pid {state.pid})" if state else ""
        raise UsageError(f"a server runs already{what}", "kernel-assistant serve --stop")
    return file


def stop_running(settings: Settings) -> bool:
    """Ends the running server and everything that it started. Returns False if no server is running. Raises EngineError
    if the server does not end."""
    state = running(settings)
    if state is None:
        return False
    for number, patience in ((signal.SIGTERM, GRACE + 7), (signal.SIGKILL, GRACE + 2)):
        with suppress(ProcessLookupError):
            os.kill(state.pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            # The server releases its lock some time before its process ends.
            if running(settings) is None and not is_alive(state.pid):
                return True
            time.sleep(0.05)
    raise EngineError(f"the server (pid {state.pid}) does not end", f"see {state.log}")


def _take(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
