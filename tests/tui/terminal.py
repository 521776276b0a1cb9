"""The program in a real terminal: tmux, with a server for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CONF = """
set -g remain-on-exit on
set -g default-terminal tmux-256color
set -g status off
set -g escape-time 20
set -ga terminal-overrides ",*:RGB"
"""
#: Names of keys as Textual has them, where tmux has another.
KEYS = {"escape": "Escape", "enter": "Enter", "tab": "Tab", "space": "Space", "down": "Down", "up": "Up"}


class Terminal:
    """`command` in one pane of `width` × `height` cells."""

    def __init__(self, command, *, cwd, width=120, height=40, environ=None):
        # A socket's path has to be short.
        self._folder = Path(tempfile.mkdtemp(prefix="ka-tmux-"))
        conf = self._folder / "tmux.conf"
        conf.write_text(CONF)
        self._command = ["tmux", "-u", "-S", str(self._folder / "s"), "-f", str(conf)]
        # Of another terminal; the program would believe them.
        inherited = {name: text for name, text in os.environ.items() if name not in ("TMUX", "COLUMNS", "LINES")}
        inherited |= {"COLORTERM": "truecolor", **(environ or {})}
        size = ["-x", str(width), "-y", str(height)]
        started = [*self._command, "new-session", "-d", *size, "-c", str(cwd), *map(str, command)]
        subprocess.run(started, env=inherited, check=True)

    def _tmux(self, *arguments):
        return subprocess.run([*self._command, *arguments], check=True, capture_output=True, text=True).stdout

    def _pane(self, what):
        return self._tmux("display-message", "-p", f"#{{{what}}}").strip()

    @property
    def pid(self):
        return int(self._pane("pane_pid"))

    @property
    def status(self):
        """The exit status of the program, or minus the signal that ended it; None while it runs."""
        if known := self._pane("pane_dead_status"):
            return int(known)
        if self._pane("pane_dead") != "1":
            return None
        # tmux 3.3 misses the end of a child now and then, and leaves it unburied: the kernel has its status.
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            return None  # buried meanwhile: tmux will say
        code = int(fields[-1])
        return None if fields[0] != "Z" else -(code & 0x7F) if code & 0x7F else code >> 8

    def text(self, *, colours=False):
        """The text on the screen."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def press(self, *keys, sees=""):
        """Presses the keys; the screen's text, once it has `sees`."""
        for key in keys:
            self._tmux("send-keys", KEYS.get(key, key))
        return self.until(sees)

    def write(self, text):
        self._tmux("send-keys", "-l", text)

    def until(self, *parts, seconds=30):
        """The screen's text, once it has every one of `parts`."""
        return self.until_true(lambda shown: all(part in shown for part in parts), seconds)

    def until_gone(self, part, seconds=30):
        return self.until_true(lambda shown: part not in shown, seconds)

    def until_true(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition(shown := self.text()):
            assert time.monotonic() < deadline, f"status {self.status}\n{shown}"
            time.sleep(0.05)
        return shown

    def until_ended(self, seconds=30):
        """Waits until the program has ended; returns its exit status."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)
        return self.status

    def hang_up(self):
        """Closes the window: the program gets SIGHUP, and its terminal no longer exists."""
        self._tmux("kill-server")

    def close(self):
        """Returns when the program has ended, because a program that still follows a job would start a host for it."""
        found = subprocess.run(
            [*self._command, "display-message", "-p", "#{pane_pid}"], capture_output=True, text=True, check=False
        ).stdout.strip()
        subprocess.run([*self._command, "kill-server"], capture_output=True, check=False)
        deadline = time.monotonic() + 5
        while found and Path("/proc", found).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(self._folder, ignore_errors=True)
