"""Runs the system's ssh: one master connection to a machine, channels over it, and errors for its failures."""

from __future__ import annotations

import hashlib
import io
import shlex
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from kernel_assistant.errors import HostError, KernelAssistantError, MissingError
from kernel_assistant.session.start import socket_path
from kernel_assistant.worker.frames import FrameError, read_frame, write_frame

_OPTIONS = {
    "BatchMode": "yes",
    "ClearAllForwardings": "yes",
    "Compression": "yes",
    "ConnectTimeout": "15",
    "ControlMaster": "auto",
    "ControlPersist": "60",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "LogLevel": "ERROR",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "ServerAliveCountMax": "3",
    "ServerAliveInterval": "5",
}
#: ssh adds up to 18 characters to the path of its control socket while it makes it; a socket's path has 107.
_MAX_CONTROL_PATH = 88
#: ssh's own exit code for everything that went wrong before, or other than, the command.
_SSH_FAILED = 255
#: Exit code of our own search for a Python if there is none.
NO_PYTHON = 86

#: Part of an error message of ssh → (cause, next step); {name} is the machine.
_MEANINGS = (
    ("could not resolve hostname", "ssh knows no such machine", "check the name: ssh {name} has to work"),
    ("host key verification failed", "its host key is not the known one", "connect once by hand: ssh {name}"),
    ("identification has changed", "its host key has changed", "find out why, then connect by hand: ssh {name}"),
    (
        "permission denied",
        "authentication was refused",
        "make `ssh -o BatchMode=yes {name} true` work (ssh-add, a key)",
    ),
    ("too many authentication", "authentication was refused", "make `ssh -o BatchMode=yes {name} true` work (ssh-add)"),
    ("connection refused", "nothing answers ssh there", "check the name and the port: ssh {name} has to work"),
    ("timed out", "it does not answer", "check that it is on and can be reached: ssh {name}"),
    ("no route to host", "it cannot be reached", "check the network: ssh {name} has to work"),
    ("network is unreachable", "it cannot be reached", "check the network: ssh {name} has to work"),
    ("bad configuration", "ssh cannot read its configuration", "mend it: ssh {name} has to work"),
)


@dataclass
class Channel:
    """A command that runs on the remote machine. `stream` is its stdin and stdout; its stderr is kept for `failure`."""

    name: str
    stream: socket.socket
    process: subprocess.Popen[bytes]
    _errors: IO[bytes]

    def ask(self, message: dict[str, Any], blobs: tuple[bytes, ...] = ()) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Sends a frame and returns the next frame of the answer, without reading any byte after it. Raises
        MissingError or HostError, depending on how the command ended without an answer."""
        request = io.BytesIO()
        write_frame(request, message, blobs)
        try:
            self.stream.sendall(request.getbuffer())
            with self.stream.makefile("rb", buffering=0) as reader:
                frame = read_frame(cast("IO[bytes]", reader))
        except FrameError as error:
            # A command that has ended broke off in the middle; if it still runs, something else wrote these bytes.
            raise _noisy(self.name, error) if self._code(1) is None else self.failure() from error
        except OSError as error:
            raise self.failure() from error
        if frame is None:
            raise self.failure()
        return frame

    def close(self) -> None:
        """Closes the channel; the remote command then reads the end of its input."""
        self.stream.close()
        self._end()
        self._errors.close()

    def lost(self) -> bool:
        """Whether ssh itself has failed, for example because the connection broke. False if the remote command
        failed."""
        code = self._code(1)
        return code is not None and _failed(code)

    def failure(self) -> KernelAssistantError:
        """Returns the error to raise if the command ended without an answer."""
        code = self._end()
        self._errors.seek(0)
        return explain(self.name, code, self._errors.read().decode(errors="replace"))

    def _end(self) -> int:
        code = self._code(5)
        if code is None:
            self.process.kill()
            code = self.process.wait()
        return code

    def _code(self, seconds: float) -> int | None:
        """Returns the exit code of ssh; None if it has not ended within `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def explain(name: str, code: int, stderr: str) -> KernelAssistantError:
    """Returns the error for a command that ended without an answer, from its exit code `code` and its error output
    `stderr`."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if _failed(code):
        for part, cause, next_step in _MEANINGS:
            if part in stderr.lower():
                return MissingError(f"{name}: {cause}", next_step.format(name=name), detail=stderr)
        cause = lines[-1] if lines else "the connection was lost"
        return MissingError(f"{name}: {cause}", f"check that this works: ssh {name} true", detail=stderr)
    if code == NO_PYTHON:
        next_step = "install one there, or name it: --remote-python PATH"
        return MissingError(f"{name}: no Python of 3.11 or newer was found there", next_step)
    cause = lines[-1] if lines else f"the command over there ended with status {code}"
    return HostError(f"{name}: {cause}", f"kernel-assistant doctor --host {name}", detail=stderr)


def _failed(code: int) -> bool:
    return code < 0 or code == _SSH_FAILED


def _noisy(name: str, error: FrameError) -> MissingError:
    """Returns the error to raise if bytes arrive on the channel that our program did not write."""
    return MissingError(
        f"{name}: its shell prints something before a command runs ({error})",
        f"make its start-up files silent where nobody looks; this must print nothing: ssh {name} true",
    )


class Ssh:
    """The connection to one machine. Channels may be opened from any thread."""

    def __init__(self, name: str, runtime_dir: Path) -> None:
        self.name = name
        digest = hashlib.sha256(f"{runtime_dir}:{name}".encode()).hexdigest()[:12]
        self.control = socket_path(runtime_dir, f"ssh-{digest}", _MAX_CONTROL_PATH)

    def open(self, *argv: str) -> Channel:
        """Starts `argv` on the remote machine and returns its channel at once. Raises MissingError if ssh is not
        installed here."""
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
        try:
            # A session of its own: Ctrl-C at the terminal is for us, and a master must outlive the command.
            process = subprocess.Popen(
                [*self._command(), "--", self.name, shlex.join(argv)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=errors,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            ours.close()
            errors.close()
            raise MissingError("ssh is not installed here", "install it: apt-get install openssh-client") from error
        finally:
            theirs.close()
        return Channel(self.name, ours, process, errors)

    def disconnect(self) -> None:
        """Ends the master connection, which also ends all channels."""
        subprocess.run([*self._command(), "-O", "exit", "--", self.name], capture_output=True, check=False)

    def _command(self) -> list[str]:
        # Read like a line of ssh's configuration: quoted for spaces, and a percent sign would be ssh's own.
        control = str(self.control).replace("%", "%%")
        options = {**_OPTIONS, "ControlPath": f'"{control}"'}
        return ["ssh", "-T", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
