"""Finds the session host, and starts it if there is none. Several clients at the same time start only one."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.errors import HostError, StoreError, boundary

_START_TIMEOUT_S = 20.0
_MAX_LOG = 1 << 20
ADDRESS_FILE = "host.json"
LOCK_FILE = "host.lock"
LOG_FILE = "host.log"

#: Hosts started by this process; kept so that ended ones can be reaped.
_children: list[subprocess.Popen[bytes]] = []


def find_host(settings: Settings) -> socket.socket | None:
    """Returns a socket that is connected to the session host; None if no host serves this state folder. Raises
    HostError if the host cannot be reached."""
    try:
        address = json.loads((settings.state_dir / ADDRESS_FILE).read_text())
        path = str(address["socket"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
        return None
    except OSError as error:
        cause = f"cannot read {settings.state_dir / ADDRESS_FILE}: {error.strerror}"
        raise HostError(cause, "make it readable or set KERNEL_ASSISTANT_STATE_DIR") from error
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        stream.close()
        return None
    except OSError as error:
        stream.close()
        cause = f"cannot reach the session host at {path}: {error.strerror}"
        raise HostError(cause, "kernel-assistant host stop, then try again") from error
    return stream


def has_ended(settings: Settings, pid: int) -> bool:
    """Whether host `pid` no longer serves this state folder. The lock decides, because an ended process may not have
    been reaped by its parent."""
    collect_children()
    try:
        if json.loads((settings.state_dir / ADDRESS_FILE).read_text())["pid"] != pid:
            return True
    except (OSError, ValueError, KeyError):
        pass  # the address is removed or was never written: the lock decides
    with (settings.state_dir / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def socket_path(folder: Path, name: str, most: int) -> Path:
    """Returns the path of the socket `name` in `folder` or, if that path would have more than `most` bytes, in a
    private folder of /tmp. Creates the folder for this user alone. Raises HostError if it belongs to another user."""
    if len(os.fsencode(folder / name)) > most:
        folder = Path("/tmp") / f"kernel-assistant-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid():
        raise HostError(f"{folder} belongs to somebody else", "remove it or set KERNEL_ASSISTANT_RUNTIME_DIR")
    folder.chmod(0o700)
    return folder / name


def start_host(settings: Settings) -> None:
    """Starts a host, unless another client has just started one, and waits until it listens. Raises HostError if it
    does not start, with the last line of its log, and StoreError if the state folder cannot be written."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (settings.state_dir / "start.lock").open("w")
    except OSError as error:
        raise StoreError(
            f"cannot write the state folder {settings.state_dir}: {error.strerror}",
            "make it writable or set KERNEL_ASSISTANT_STATE_DIR",
        ) from error
    with lock, boundary(HostError, "the session host cannot be started"):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _listening(settings):
            _await(settings, _spawn(settings))


def _listening(settings: Settings) -> bool:
    stream = find_host(settings)
    if stream is None:
        return False
    stream.close()
    return True


def _spawn(settings: Settings) -> subprocess.Popen[bytes]:
    log = settings.state_dir / LOG_FILE
    if log.exists() and log.stat().st_size > _MAX_LOG:
        log.replace(log.with_suffix(".log.old"))
    environment = {**os.environ, **_folders(settings)}
    with log.open("ab") as sink:
        # Started in the parent folder of the package, which `-m` puts first on the import path, so that the host runs
        # this code, installed or not. The host changes its folder at once.
        child = subprocess.Popen(
            [sys.executable, "-m", "kernel_assistant.session.host"],
            cwd=Path(__file__).resolve().parents[2],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    collect_children()
    _children.append(child)
    return child


def collect_children() -> None:
    """Reaps the ended hosts among those that this process started."""
    _children[:] = [child for child in _children if child.poll() is None]


def _folders(settings: Settings) -> dict[str, str]:
    """Returns environment variables with the settings that the host must share with this client."""
    names = ("state_dir", "cache_dir", "runtime_dir", "host_idle_seconds", "worker_idle_seconds")
    return {f"KERNEL_ASSISTANT_{name.upper()}": str(getattr(settings, name)) for name in names}


def _await(settings: Settings, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if _listening(settings):
            return
        if child.poll() not in (None, 0):
            raise HostError(f"the session host ended at once: {_last_words(settings)}", _see_log(settings))
        time.sleep(0.02)
        if child.poll() == 0:
            # The new host ended at once, because an ending host still held the lock.
            child = _spawn(settings)
    raise HostError(f"the session host did not come up in {_START_TIMEOUT_S:.0f} s", _see_log(settings))


def _last_words(settings: Settings) -> str:
    lines = (settings.state_dir / LOG_FILE).read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"


def _see_log(settings: Settings) -> str:
    return f"see {settings.state_dir / LOG_FILE}"
