"""Sends requests to a remote machine with this tool installed, and to the session host there."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import InternalError
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.remote.closure import SourceClosure
from kernel_assistant.remote.install import Installer, RemoteInstallation, ShippedModule
from kernel_assistant.remote.ssh import Channel, Ssh
from kernel_assistant.session.client import Client
from kernel_assistant.session.doctor import Diagnosis
from kernel_assistant.session.wire import error_from_wire
from kernel_assistant.store import JobOptions

DEFAULT_FOLDER = "~/.cache/kernel-assistant/remote"


@dataclass(frozen=True)
class PreparedJob:
    """The job to submit to the remote machine, the files that were sent for it, and the name of the remote device."""

    task: KernelTask
    options: JobOptions
    shipped: ShippedModule
    device: str


class RemoteMachine:
    """The machine that `settings.host` names. The constructor connects, and installs this tool there if it is
    missing.

    Methods raise the errors of the remote machine, and MissingError if ssh fails.
    """

    def __init__(self, settings: Settings) -> None:
        self.name = settings.host
        self._settings = settings
        self.ssh = Ssh(settings.host, settings.runtime_dir)
        with self._installer() as installer:
            self.installed: RemoteInstallation = installer.installed
        self.client = RemoteClient(settings, self)

    def prepare(self, task: KernelTask, chosen: JobOptions, closure: SourceClosure) -> PreparedJob:
        """Sends the module's files. Returns the task and the options for the remote machine, which have the remote
        target, interpreter and paths, and otherwise equal those of a local job."""
        with self._installer() as installer:
            shipped = installer.ship(closure)
        path = f"{shipped.root}/{closure.path}" if closure.path else task.path
        opened, _ = self.call("open", path=path)
        there = msgspec.structs.replace(
            task,
            path=path,
            search_path=tuple(f"{shipped.root}/{name}" for name in closure.search_path),
            target=str(opened["target"]),
            recording=f"{shipped.root}/{closure.recording}" if closure.recording else "",
        )
        # With this path any client can find the file that the result is for.
        source_path = f"{task.path}:{task.class_name}"
        chosen = msgspec.structs.replace(chosen, python=str(opened["python"]), source_path=source_path)
        return PreparedJob(task=there, options=chosen, shipped=shipped, device=str(opened["device"]))

    def doctor(self) -> Diagnosis:
        return from_builtins(self.call("doctor")[0], Diagnosis)

    def stop(self) -> bool:
        """Ends the remote session host. Returns whether one was running."""
        return bool(self.call("stop")[0]["stopped"])

    def call(self, method: str, **params: Any) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Calls one method of `server.py` over a new channel. Returns its answer and its blobs (contents of files)."""
        channel = self.channel()
        try:
            return self.ask(channel, method, params)
        finally:
            channel.close()

    def channel(self) -> Channel:
        """Starts a new `server.py` process on the remote machine and returns the channel to it."""
        there = self.installed
        script = 'cd "$1" && exec "$2" -m kernel_assistant.remote.server "$3"'
        return self.ssh.open("sh", "-c", script, "sh", there.lib, there.python, there.folder)

    def ask(self, channel: Channel, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        answer, blobs = channel.ask({"method": method, "params": params, "settings": self._remote_settings()})
        if "error" in answer:
            raise error_from_wire(answer["error"])
        result = answer["result"]
        if not isinstance(result, dict):
            raise InternalError(f"{self.name} answered {method} with something else", "please report this")
        return result, blobs

    def _installer(self) -> Installer:
        return Installer(self.ssh, self._settings.remote_dir or DEFAULT_FOLDER, self._settings.remote_python)

    def _remote_settings(self) -> dict[str, str]:
        settings = self._settings
        return {
            "python": settings.remote_python,
            "sandbox": settings.sandbox,
            "target": settings.target,
            "host_idle_seconds": str(settings.host_idle_seconds),
            "worker_idle_seconds": str(settings.worker_idle_seconds),
        }


class RemoteClient(Client):
    """A client of the session host on the remote machine. It connects through `server.py`."""

    def __init__(self, settings: Settings, machine: RemoteMachine) -> None:
        super().__init__(settings)
        self._machine = machine
        self._channels: list[Channel] = []

    def lost(self) -> bool:
        """Whether ssh's connection to the machine has failed, rather than the session host there."""
        return any(channel.lost() for channel in self._channels)

    def shutdown(self) -> bool:
        return self._machine.stop()

    def _reach(self) -> socket.socket | None:
        return self._relay(start=False)

    def _start(self) -> None:
        stream = self._relay(start=True)
        if stream is not None:
            stream.close()

    def _relay(self, *, start: bool) -> socket.socket | None:
        channel = self._machine.channel()
        try:
            answer, _ = self._machine.ask(channel, "relay", {"start": start})
        except BaseException:
            channel.close()
            raise
        if not answer["found"]:
            channel.close()
            return None
        self._channels = [one for one in self._channels if one.process.poll() is None or one.lost()]
        self._channels.append(channel)
        return channel.stream
