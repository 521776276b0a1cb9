"""An engine (vLLM or llama.cpp) as a process: starts it, checks whether it answers, and ends it."""

from __future__ import annotations

import http.client
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.serving.causes import explain
from kernel_assistant.serving.errors import EngineError

#: Seconds between asking an engine to end and killing it. vLLM's processes need some to free the GPU.
GRACE = 8.0
_MAX_LOG = 4 << 20
_TAIL = 1 << 16
_LEASH = Path(__file__).parent / "leash.py"


@dataclass(frozen=True)
class EngineSpec:
    """The engine to start (vLLM or llama.cpp). `model` is the name under which it serves the model, `source` the user's
    name for the model, `context` the most tokens of a conversation, 0 if the engine decides; `key` is the API key."""

    engine: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    host: str
    port: int
    key: str
    model: str
    source: str
    log: Path
    ready_seconds: float
    context: int = 0

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://[{host}]:{self.port}/v1" if ":" in host else f"http://{host}:{self.port}/v1"


class EngineProcess:
    """A started engine. It ends when this process ends, even if this process is killed."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        spec.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if spec.log.exists() and spec.log.stat().st_size > _MAX_LOG:
            spec.log.replace(spec.log.with_suffix(".log.old"))
        with spec.log.open("ab") as sink:
            self._log_begins = sink.tell()
            self._leash = subprocess.Popen(
                [sys.executable, "-I", str(_LEASH), str(GRACE), *spec.command],
                env=dict(spec.environment),
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the process that runs `leash.py`, the parent of the engine."""
        return self._leash.pid

    def exit_code(self) -> int | None:
        """Returns the engine's exit code, 128 + n for signal n; None while the engine runs."""
        return self._leash.poll()

    def healthy(self) -> bool:
        """Whether the engine runs and answers its health page now."""
        return self.exit_code() is None and answers(self.spec.host, self.spec.port, self.spec.key)

    def stop(self) -> None:
        """Ends the engine's whole process group and waits until it has ended."""
        if self._leash.stdin is not None:
            with suppress(BrokenPipeError):
                self._leash.stdin.close()
        try:
            self._leash.wait(GRACE + 5)
        except subprocess.TimeoutExpired:
            self._leash.kill()
            self._leash.wait()

    def log_tail(self) -> str:
        """Returns the end of the engine's log, without lines from before this start."""
        with self.spec.log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(self._log_begins, log.tell() - _TAIL))
            return log.read().decode(errors="replace")

    def cause(self) -> tuple[KernelAssistantError, bool]:
        """Returns the error that says why the engine ended, and whether this is a known cause, which a restart does not
        remove."""
        known = explain(self.log_tail(), self.spec.source, self.spec.port)
        if known is not None:
            return known, True
        code = self.exit_code()
        how = f"killed by signal {code - 128}" if code is not None and code > 128 else f"exit code {code}"
        return EngineError(
            f"{self.spec.engine} ended ({how}){_last_line(self.log_tail())}", f"see {self.spec.log}"
        ), False


def answers(host: str, port: int, key: str) -> bool:
    """Whether a server's health page reports that it is ready."""
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    connection = http.client.HTTPConnection(host, port, timeout=5)
    with closing(connection):
        try:
            connection.request("GET", "/health", headers={"Authorization": f"Bearer {key}"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def free_port(host: str, wanted: int = 0) -> int:
    """Returns the port `wanted` if it is free, or for 0 any free port. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError as error:
            what = f"port {wanted} of {host} is taken" if wanted else f"cannot listen on {host}"
            raise UsageError(f"{what}: {error.strerror}", "--port N with another one, or leave it out") from error
        return int(probe.getsockname()[1])


def new_key() -> str:
    """Returns a key that other users of this machine cannot guess."""
    return secrets.token_urlsafe(24)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][-200:]}" if lines else ""
