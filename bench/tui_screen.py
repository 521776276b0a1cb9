"""A program behind a pseudo terminal: keys in, bytes out, and how long one took to become the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

import psutil


class Screen:
    """`command` in a terminal of `width` × `height` cells. What it writes is read at once, as a terminal would."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path, width: int, height: int) -> None:
        self._side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=folder,
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(other)
        self._seen = bytearray()
        self._news = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()
        self.process = psutil.Process(self._process.pid)

    def press(self, keys: bytes, wanted: bytes, timeout: float = 20.0) -> float:
        """Seconds from writing `keys` until `wanted` was written to the terminal. Raises RuntimeError if it is not."""
        with self._news:
            self._seen.clear()
        began = time.perf_counter()
        os.write(self._side, keys)
        return self.until(wanted, timeout) - began

    def type(self, keys: bytes) -> None:
        with self._news:
            self._seen.clear()
        os.write(self._side, keys)

    def until(self, wanted: bytes, timeout: float = 60.0) -> float:
        """When (time.perf_counter) `wanted` was there, since the last key."""
        with self._news:
            if not self._news.wait_for(lambda: wanted in self._seen or self._ended, timeout) or self._ended:
                tail = bytes(self._seen[-2000:])
                raise RuntimeError(f"{wanted!r} was not painted; the last that was: {tail!r}")
            return time.perf_counter()

    def quiet(self, seconds: float, timeout: float = 60.0) -> None:
        """Wait until nothing has been painted for `seconds`."""
        deadline = time.perf_counter() + timeout
        with self._news:
            while self._news.wait(seconds):
                if time.perf_counter() > deadline:
                    raise RuntimeError("it does not stop painting")

    def memory(self) -> float:
        """Resident, in MB."""
        return float(self.process.memory_info().rss) / 1e6

    def processor(self, seconds: float) -> float:
        """Percent of one core over `seconds`."""
        before, began = self.process.cpu_times(), time.perf_counter()
        time.sleep(seconds)
        after, passed = self.process.cpu_times(), time.perf_counter() - began
        return 100.0 * (after.user + after.system - before.user - before.system) / passed

    def mapped(self, *parts: str) -> list[str]:
        """Files of shared libraries in the process whose path holds one of `parts`."""
        return [one.path for one in self.process.memory_maps() if any(part in one.path for part in parts)]

    def close(self) -> None:
        """Hang up, as a terminal does whose window is closed."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGHUP)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._side)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._side, 1 << 16)
            except OSError:
                data = b""
            with self._news:
                self._seen += data
                self._ended = not data
                self._news.notify_all()
            if not data:
                return
