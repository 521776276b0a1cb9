"""The session host: `python -m kernel_assistant.session.host`. The first client starts it; it ends when idle."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO

from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import EXIT_OK, HostError, KernelAssistantError, boundary
from kernel_assistant.events import AnyEvent
from kernel_assistant.records import KernelTask, OptimizeResult
from kernel_assistant.session.hosting.jobs import JobServices, JobTable, RunJob
from kernel_assistant.session.hosting.server import Server
from kernel_assistant.session.start import ADDRESS_FILE, LOCK_FILE, socket_path
from kernel_assistant.session.wire import hello
from kernel_assistant.signals import SignalSafeEvent
from kernel_assistant.store import JobOptions

_log = logging.getLogger(__name__)

#: `sun_path` has 108 bytes, including the terminating zero.
_MAX_SOCKET_PATH = 107


def serve(settings: Settings, run: RunJob, lane_of: Callable[[KernelTask], str]) -> int:
    """Serves clients until the host has been idle for a while, a client asks it to stop or it gets a signal. Returns
    the exit code; returns at once if another host serves this state folder. `run` runs one job; `lane_of` returns the
    name of the job queue for a task. Raises HostError if the host cannot start."""
    with boundary(HostError, "the session host cannot start"):
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _lock(settings.state_dir / LOCK_FILE)
        if lock is None:
            return EXIT_OK
        digest = hashlib.sha256(os.fsencode(settings.state_dir)).hexdigest()[:12]
        path = socket_path(settings.runtime_dir, f"host-{digest}.sock", _MAX_SOCKET_PATH)
        listener = _listen(path)
    try:
        _serve_locked(settings, run, lane_of, path, listener)
    finally:
        lock.close()
    return EXIT_OK


def _serve_locked(
    settings: Settings,
    run: RunJob,
    lane_of: Callable[[KernelTask], str],
    path: Path,
    listener: socket.socket,
) -> None:
    jobs = JobTable(settings, run, lane_of)
    server = Server(listener, jobs)
    _stop_on_signals(server.stop)
    address = settings.state_dir / ADDRESS_FILE
    _announce(address, path)
    mine = path.stat().st_ino
    threading.Thread(target=server.accept_forever, daemon=True).start()
    _log.info("serving at %s as pid %d", path, os.getpid())
    try:
        _wait_until_idle(server, jobs, settings.host_idle_seconds)
    finally:
        # The address is removed first, so that a client that comes now starts a new host instead of calling this one.
        server.stop.set()
        _withdraw(address, path, mine)
        listener.close()
        jobs.close()
        server.drain(1.0)
        _log.info("ended")


def _wait_until_idle(server: Server, jobs: JobTable, limit: float) -> None:
    while not server.stop.wait(min(0.2, limit / 2)):
        idle = server.idle_seconds()
        if (idle > limit or (server.retiring and idle > 0)) and jobs.retire():
            return


def _stop_on_signals(stop: SignalSafeEvent) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _lock(path: Path) -> IO[str] | None:
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _listen(path: Path) -> socket.socket:
    # This process holds the lock, so an existing socket file belongs to a dead host.
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(64)
    return listener


def _announce(address: Path, path: Path) -> None:
    document = {**hello(), "socket": str(path), "pid": os.getpid()}
    draft = address.with_suffix(".new")
    draft.write_text(json.dumps(document))
    draft.replace(address)


def _withdraw(address: Path, path: Path, mine: int) -> None:
    """Removes the file `address` if it names this process, and the socket `path` if its inode is still `mine`.
    Otherwise they belong to a newer host; that happens if the state folder was deleted together with the lock."""
    with contextlib.suppress(OSError, ValueError):
        if json.loads(address.read_text())["pid"] == os.getpid():
            address.unlink()
    with contextlib.suppress(OSError):
        if path.stat().st_ino == mine:
            path.unlink()


def _run_job(
    task: KernelTask,
    options: JobOptions,
    *,
    emit: Callable[[AnyEvent], None],
    cancel: threading.Event,
    services: JobServices,
) -> OptimizeResult:
    """Runs a job. Imports the modules for jobs only now, so that the host can answer before they are loaded."""
    from kernel_assistant.session.kinds.job import run_job

    return run_job(task, options, emit=emit, cancel=cancel, services=services)


def _lane_of(task: KernelTask) -> str:
    from kernel_assistant.session.kinds.job import lane_of

    return lane_of(task)


def main() -> int:
    """Entry point of the process; returns the exit code. The client that starts it sends stdout and stderr to a log
    file."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings, warnings = resolve()
        for warning in warnings:
            _log.warning("%s", warning)
        os.chdir("/")
        return serve(settings, _run_job, _lane_of)
    except KernelAssistantError as error:
        _log.error("failed: %s", error.cause)
        sys.stderr.write(f"error: {error.cause}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
