"""A program in a pseudo terminal: sends keys, reads output, and measures the time between."""

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
    """`command` in a terminal of `width` × `height` cells. Its output is read at once, as a terminal would."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path, width: int, height: int) -> None:
        self._side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.began = time.perf_counter()
        env = {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, cwd=folder, env=env, start_new_session=True
        )
        os.close(other)
        self._seen = bytearray()
        self._news = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()
        self.process = psutil.Process(self._process.pid)

    def press(self, keys: bytes, wanted: bytes, timeout: float = 20.0) -> float:
        """Seconds from writing `keys` until `wanted` appears in the output. Raises RuntimeError if it does not."""
        began = self.type(keys)
        return self.until(wanted, timeout) - began

    def type(self, keys: bytes) -> float:
        """Writes `keys`; returns the time (time.perf_counter) just before."""
        with self._news:
            self._seen.clear()
        began = time.perf_counter()
        os.write(self._side, keys)
        return began

    def until(self, wanted: bytes, timeout: float = 60.0) -> float:
        """The time (time.perf_counter) at which `wanted` appeared, since the last key."""
        with self._news:
            if not self._news.wait_for(lambda: wanted in self._seen or self._ended, timeout) or self._ended:
                tail = bytes(self._seen[-2000:])
                raise RuntimeError(f"{wanted!r} was not painted; the last that was: {tail!r}")
            return time.perf_counter()

    def quiet(self, seconds: float = 0.7, timeout: float = 60.0) -> None:
        """Waits until nothing has been painted for `seconds`."""
        deadline = time.perf_counter() + timeout
        with self._news:
            while self._news.wait(seconds):
                if time.perf_counter() > deadline:
                    raise RuntimeError("it does not stop painting")

    def memory(self) -> float:
        """Resident memory in MB."""
        return float(self.process.memory_info().rss) / 1e6

    def processor(self, seconds: float) -> float:
        """Percent of one core, over `seconds`."""
        before, began = self.process.cpu_times(), time.perf_counter()
        time.sleep(seconds)
        after, passed = self.process.cpu_times(), time.perf_counter() - began
        return 100.0 * (after.user + after.system - before.user - before.system) / passed

    def mapped(self, *parts: str) -> list[str]:
        """Shared libraries in the process whose path contains one of `parts`."""
        return [one.path for one in self.process.memory_maps() if any(part in one.path for part in parts)]

    def close(self) -> None:
        """Hangs up, as a terminal does when its window is closed."""
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
