"""The objects with which a sandbox is tested: a workspace, a read-only folder, secrets outside, and a victim
process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from kernel_assistant.sandbox.contract import Sandbox, SandboxSpec
from kernel_assistant.sandbox.launcher import PYTHON

PROBES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probes.py")
PATIENCE = 30.0  # seconds, for one probe on a busy machine


@dataclass(frozen=True)
class ProbeResult:
    """Whether a property `held`, None if it could not be tested (for example without a compiler). `detail` says what
    was observed."""

    name: str
    held: bool | None
    detail: str = ""


Check = Callable[["ProbeFolders"], Iterator[ProbeResult]]


@dataclass
class ProbeFolders:
    """Folders for a test, all owned by the user: `inside` is the workspace, `shown` is read-only, `outside` not
    visible."""

    sandbox: Sandbox
    token: str = field(default_factory=lambda: f"secret-{uuid.uuid4().hex}")

    def __enter__(self) -> Self:
        self.top = os.path.realpath(tempfile.mkdtemp(prefix="sandbox-check-"))
        self.inside, self.shown, self.outside = (self._folder(name) for name in ("inside", "shown", "outside"))
        self.secrets = [self._secret(self.outside)]
        self.at_home = self._folder_at_home()
        if self.at_home is not None:
            self.secrets.append(self._secret(self.at_home))
        self.shown_file = self._secret(self.shown)
        self.victim = _victim()
        return self

    def __exit__(self, *_: object) -> None:
        self.victim.kill()
        self.victim.wait()
        for folder in (self.top, self.at_home):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def spec(self, argv: Sequence[str], **changes: Any) -> SandboxSpec:
        base = SandboxSpec(argv=tuple(argv), workspace=self.inside, read_only=(self.shown, PROBES))
        return msgspec.structs.replace(base, **changes)

    def probe_spec(self, name: str, *arguments: Any, **changes: Any) -> SandboxSpec:
        return self.spec((PYTHON, "-I", "-S", PROBES, name, json.dumps(arguments)), **changes)

    def probe(self, name: str, *arguments: Any, pass_fds: Sequence[int] = (), **changes: Any) -> Any:
        """Runs a probe as the judge runs candidates, and returns its answer. Raises RuntimeError with stderr if there
        is none."""
        command = self.sandbox.command(self.probe_spec(name, *arguments, **changes))
        apart: dict[str, Any] = {"stdin": subprocess.DEVNULL, "pass_fds": pass_fds, "start_new_session": True}
        done = subprocess.run(
            command.argv, env=command.env, capture_output=True, timeout=PATIENCE, check=False, **apart
        )
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise RuntimeError(f"{name} gave no answer: exit {done.returncode}, {done.stderr[-500:]!r}") from None

    def new_victim(self) -> None:
        self.victim.wait()
        self.victim = _victim()

    def is_intact(self) -> bool:
        """Whether every folder except the workspace still contains only its one file, unchanged."""
        for path in (*self.secrets, self.shown_file):
            if os.listdir(os.path.dirname(path)) != [self.token]:
                return False
            with open(path, encoding="ascii") as file:
                if file.read() != self.token:
                    return False
        return True

    def restore(self) -> None:
        """Restores the folders after a sandbox that did not protect them."""
        for path in (*self.secrets, self.shown_file):
            folder = os.path.dirname(path)
            shutil.rmtree(folder)
            os.mkdir(folder)
            self._secret(folder)

    def _folder(self, name: str) -> str:
        path = os.path.join(self.top, name)
        os.mkdir(path)
        return path

    def _secret(self, folder: str) -> str:
        path = os.path.join(folder, self.token)
        with open(path, "w", encoding="ascii") as file:
            file.write(self.token)
        return path

    def _folder_at_home(self) -> str | None:
        """Makes a folder in the user's home. Returns None if the home is not writable."""
        with suppress(OSError):
            return tempfile.mkdtemp(prefix=".sandbox-check-", dir=os.path.expanduser("~"))
        return None


def _victim() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], start_new_session=True)


def with_token(token: str) -> list[int]:
    """Returns the ids of processes on the whole machine whose last argument is the token."""
    ending = f"\0{token}\0".encode()
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if file.read().endswith(ending):
                pids.append(int(name))
    return pids


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Waits until `condition()` is True. Returns False after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
