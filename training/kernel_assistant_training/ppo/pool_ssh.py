"""A pool's machine behind ssh."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import IO, cast

from kernel_assistant.config import resolve
from kernel_assistant.errors import HostError, KernelAssistantError, MissingError
from kernel_assistant.remote.ssh import Channel, Ssh
from kernel_assistant.worker.frames import FrameError, read_frame, write_frame
from kernel_assistant_training.ppo.pool_events import StationOptions
from kernel_assistant_training.ppo.pool_kind import own_version
from kernel_assistant_training.ppo.pool_machine import Far, Hear, Machine, Message

MODULE = "kernel_assistant_training.ppo.pool_far"


def connect(name: str, python: str, options: StationOptions, hear: Hear, silent_seconds: float) -> Machine:
    """The machine that ssh calls `name`, with `python` over there. Raises MissingError where it cannot be reached or
    lacks something, UsageError where it has another version."""
    script = 'exec "$1" -m "$2"'
    channel = Ssh(name, resolve()[0].runtime_dir).open("sh", "-c", script, "sh", python, MODULE)
    return Far(name, ChannelWire(channel, python, silent_seconds), options, hear, silent_seconds)


class ChannelWire:
    """See `Wire`: frames on a channel."""

    def __init__(self, channel: Channel, python: str, silent_seconds: float) -> None:
        self._channel, self._python = channel, python
        self._ending, self._closed = threading.Lock(), False
        channel.stream.settimeout(silent_seconds)
        self._reader = channel.stream.makefile("rb")
        self._writer = channel.stream.makefile("wb")

    def send(self, message: Message) -> None:
        try:
            write_frame(cast("IO[bytes]", self._writer), message)
        except TimeoutError as error:
            raise HostError(f"{self._channel.name}: it takes nothing any more") from error
        except (OSError, ValueError) as error:
            raise self._failure() from error

    def receive(self, seconds: float) -> Message:
        try:
            self._channel.stream.settimeout(seconds)
            frame = read_frame(cast("IO[bytes]", self._reader))
        except TimeoutError as error:
            raise HostError(f"{self._channel.name}: it said nothing for {seconds:.0f} s") from error
        except (OSError, ValueError) as error:
            if isinstance(error, FrameError) and self._channel.process.poll() is None:
                next_step = f"this must print nothing: ssh {self._channel.name} true"
                raise HostError(f"{self._channel.name}: it broke the protocol ({error})", next_step) from error
            raise self._failure() from error
        if frame is None:
            raise self._failure()
        return frame[0]

    def close(self) -> None:
        # Whoever waits in another thread wakes up; its files keep the socket open otherwise.
        with contextlib.suppress(OSError):
            self._channel.stream.shutdown(socket.SHUT_RDWR)
        with self._ending:
            if not self._closed:
                self._closed = True
                self._channel.close()

    def _failure(self) -> KernelAssistantError:
        """What the program over there said last, or ssh."""
        with self._ending:
            if self._closed:
                return HostError(f"{self._channel.name}: the connection was closed")
            error = self._channel.failure()
        name, said = self._channel.name, error.detail
        if re.search(r"(not found|No such file or directory|Permission denied)$", error.cause) and self._python in said:
            return MissingError(f"{name}: {self._python} is not there", "name another: ssh://HOST?python=PATH")
        if "No module named 'kernel_assistant" in said or "No module named kernel_assistant" in said:
            return MissingError(
                f"{name}: kernel-assistant is not installed for {self._python}",
                f"install {own_version()['version']} there with the extras torch and train, or: ssh://HOST?python=PATH",
            )
        if isinstance(error, HostError):
            return HostError(error.cause, f"look there: ssh {name}", detail=said)
        return error
