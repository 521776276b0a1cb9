"""The model server, one for each user and state folder. `serve` runs it in this process; a detached server is the
process `python -m kernel_assistant.serving.server`, which gets the request on stdin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import KernelAssistantError, kind_of
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.serving.engine import EngineSpec
from kernel_assistant.serving.errors import EngineError
from kernel_assistant.serving.plan import plan
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.state import ServerState, folder, last_state, take_lock, write_state
from kernel_assistant.serving.supervisor import ServerChange, ServerStatus, Supervisor
from kernel_assistant.signals import SignalSafeEvent

Tell = Callable[[ServerState], None]


def serve(request: ServeRequest, settings: Settings, tell: Tell) -> None:
    """Serves until SIGTERM or SIGINT. Calls `tell` with the state after every change. If it cannot serve, raises an
    error with the reason."""
    stop = SignalSafeEvent()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with take_lock(settings):
            spec = plan(request, settings)
            Supervisor(spec, lambda report: _announce(spec, report, settings, tell)).run(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve_detached(request: ServeRequest, settings: Settings, tell: Tell) -> ServerState:
    """Starts a server that outlives this process, waits until it is ready, and returns its state. If the server fails,
    raises the error with which it failed."""
    with take_lock(settings):
        plan(request, settings)  # checked here first, so that errors appear in the terminal
    log = folder(settings) / "server.log"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "kernel_assistant.serving.server"],
            cwd=Path(__file__).parent.parent.parent,
            env={**os.environ, "KERNEL_ASSISTANT_STATE_DIR": str(settings.state_dir)},
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    assert child.stdin is not None
    child.stdin.write(encode(request))
    child.stdin.close()
    return _await(child, settings, tell, log)


def _await(child: subprocess.Popen[bytes], settings: Settings, tell: Tell, log: Path) -> ServerState:
    reported = None
    while True:
        ended = child.poll() is not None
        state = last_state(settings)
        if state is not None and state.pid == child.pid and state != reported:
            tell(state)
            reported = state
            if state.status is ServerStatus.ready:
                return state
            if state.status is ServerStatus.failed:
                child.wait()
                raise error_of(state)
        if ended:
            raise EngineError(f"the server ended: {_last_line(log)}", f"see {log}")
        time.sleep(0.1)


def error_of(state: ServerState) -> KernelAssistantError:
    """Returns the error with which a server failed, in the class that belongs to the exit code in `state`."""
    return kind_of(state.exit_code)(state.cause, state.next_step)


def _announce(spec: EngineSpec, report: ServerChange, settings: Settings, tell: Tell) -> None:
    error = report.error
    state = ServerState(
        pid=os.getpid(),
        engine=spec.engine,
        source=spec.source,
        url=spec.url,
        key=spec.key,
        model=spec.model,
        status=report.status,
        log=str(spec.log),
        started=time.time(),
        engine_pid=report.pid,
        ready_seconds=round(report.seconds, 2),
        restarts=report.restarts,
        cause=error.cause if error else "",
        next_step=error.next_step if error else "",
        exit_code=error.exit_code if error else 0,
        context=spec.context,
    )
    write_state(settings, state)
    tell(state)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def main() -> int:
    """Runs the detached server, for the request in stdin. Returns the exit code."""
    request = decode(sys.stdin.buffer.read(), ServeRequest)
    settings, _ = resolve()
    try:
        serve(request, settings, lambda _: None)
    except KernelAssistantError as error:
        print(error.cause, error.next_step, sep="\n", file=sys.stderr)  # noqa: T201 - its log
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
