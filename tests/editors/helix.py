"""Helix in a terminal: the result of an earlier job is offered, applied, saved, undone and saved again."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import pack
from types import TracebackType
from typing import Self

_ROWS, _COLUMNS = 40, 130
_ENTER, _DOWN, _ESCAPE = "\r", "\x1b[B", "\x1b"


class Helix:
    """Runs `hx FILE:LINE` with `config` as its languages.toml. Tests type keys and check the file and the log."""

    def __init__(self, hx: str, file: Path, line: int, config: str, folder: Path, environ: Mapping[str, str]) -> None:
        place = folder / "helix"
        place.mkdir()
        (place / "languages.toml").write_text(config)
        self._file = folder / "helix.log"
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, pack("HHHH", _ROWS, _COLUMNS, 0, 0))
            more = {"XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "TERM": "xterm-256color"}
            os.execvpe(hx, [hx, "-v", "--log", str(self._file), f"{file}:{line}"], {**environ, **more})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def said(self, words: str) -> int:
        """How often `words` occur in the messages between Helix and the server."""
        return self._log().count(words)

    def _log(self) -> str:
        return self._file.read_text() if self._file.exists() else ""

    def press(self, *keys: str) -> None:
        """Presses the keys one after another; waits until each has been drawn."""
        for key in keys:
            os.write(self._terminal, key.encode())
            self.wait(0.3)

    def action(self, place: int) -> None:
        """The code action at index `place` of the menu for the cursor's line; the menu opens with the first one
        selected.
        """
        asked = self.said("textDocument/codeAction")
        self.press(_ESCAPE, " ", "a")
        self.until(lambda: self.said("textDocument/codeAction") > asked)
        self.wait(1.0)
        self.press(*[_DOWN] * (place - 1), _ENTER)

    def save(self) -> None:
        self.press(_ESCAPE, ":", "w", _ENTER)

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self._log()[-2000:]
            self.wait(0.2)

    def wait(self, seconds: float) -> None:
        """Reads the output while waiting, because Helix stops if nobody reads it."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                os.read(self._terminal, 1 << 16)
