"""Another machine with this tool on it: its session host, and what else is asked of it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import InternalError
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.remote.closure import Closure
from kernel_assistant.remote.install import Installed, Installer, Shipped
from kernel_assistant.remote.ssh import Channel, Ssh
from kernel_assistant.session.client import Client
from kernel_assistant.session.doctor import Diagnosis
from kernel_assistant.session.wire import error_from_wire
from kernel_assistant.store import JobOptions

DEFAULT_FOLDER = "~/.cache/kernel-assistant/remote"


@dataclass(frozen=True)
class Prepared:
    """What to submit over there, and what had to travel for it."""

    task: KernelTask
    options: JobOptions
    shipped: Shipped
    device: str


class Box:
    """The machine that `settings.host` names. Making one connects, and puts this tool there if it is not.

    Methods raise what the other machine raises, and MissingError where ssh fails.
    """

    def __init__(self, settings: Settings) -> None:
        self.name = settings.host
        self._settings = settings
        self.ssh = Ssh(settings.host, settings.runtime_dir)
        with self._installer() as installer:
            self.installed: Installed = installer.installed
        self.client = BoxClient(settings, self)

    def prepare(self, task: KernelTask, chosen: JobOptions, closure: Closure) -> Prepared:
        """Task and options for over there, with the module's files shipped. Both are as they would be here, but for
        the target and the interpreter, which are found there."""
        with self._installer() as installer:
            shipped = installer.ship(closure)
        path = f"{shipped.root}/{closure.path}" if closure.path else task.path
        found, _ = self.call("open", path=path)
        there = msgspec.structs.replace(
            task,
            path=path,
            search_path=tuple(f"{shipped.root}/{name}" for name in closure.search_path),
            target=str(found["target"]),
            recording=f"{shipped.root}/{closure.recording}" if closure.recording else "",
        )
        # By its path, the file that the result is for is found again, by any client.
        source_path = f"{task.path}:{task.class_name}"
        chosen = msgspec.structs.replace(chosen, python=str(found["python"]), source_path=source_path)
        return Prepared(task=there, options=chosen, shipped=shipped, device=str(found["device"]))

    def doctor(self) -> Diagnosis:
        return from_builtins(self.call("doctor")[0], Diagnosis)

    def stop(self) -> bool:
        """End the session host over there; False where there is none."""
        return bool(self.call("stop")[0]["stopped"])

    def call(self, method: str, **params: Any) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """One call of `far.py`."""
        channel = self.channel()
        try:
            return self.ask(channel, method, params)
        finally:
            channel.close()

    def channel(self) -> Channel:
        """A fresh `far.py`."""
        there = self.installed
        script = 'cd "$1" && exec "$2" -m kernel_assistant.remote.far "$3"'
        return self.ssh.open("sh", "-c", script, "sh", there.lib, there.python, there.folder)

    def ask(self, channel: Channel, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        answer, blobs = channel.ask({"method": method, "params": params, "settings": self._far_settings()})
        if "error" in answer:
            raise error_from_wire(answer["error"])
        result = answer["result"]
        if not isinstance(result, dict):
            raise InternalError(f"{self.name} answered {method} with something else", "please report this")
        return result, blobs

    def _installer(self) -> Installer:
        return Installer(self.ssh, self._settings.remote_dir or DEFAULT_FOLDER, self._settings.remote_python)

    def _far_settings(self) -> dict[str, str]:
        settings = self._settings
        return {
            "python": settings.remote_python,
            "sandbox": settings.sandbox,
            "target": settings.target,
            "host_idle_seconds": str(settings.host_idle_seconds),
            "worker_idle_seconds": str(settings.worker_idle_seconds),
        }


class BoxClient(Client):
    """The session host over there, through `far.py`."""

    def __init__(self, settings: Settings, box: Box) -> None:
        super().__init__(settings)
        self._box = box
        self._channels: list[Channel] = []

    def lost(self) -> bool:
        """Whether the connection, rather than the session host, has failed."""
        return any(channel.lost() for channel in self._channels)

    def shutdown(self) -> bool:
        return self._box.stop()

    def _reach(self) -> socket.socket | None:
        return self._relay(start=False)

    def _start(self) -> None:
        stream = self._relay(start=True)
        if stream is not None:
            stream.close()

    def _relay(self, *, start: bool) -> socket.socket | None:
        channel = self._box.channel()
        try:
            answer, _ = self._box.ask(channel, "relay", {"start": start})
        except BaseException:
            channel.close()
            raise
        if not answer["found"]:
            channel.close()
            return None
        self._channels = [one for one in self._channels if one.process.poll() is None or one.lost()]
        self._channels.append(channel)
        return channel.stream
