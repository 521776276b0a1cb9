"""Stages in processes that tests kill. They are forked from a process with torch, because importing it would take
seconds each time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

from kernel_assistant.session.training_run import RunState, read_status

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.failures.preloaded"])
#: Seconds until what is waited for has to have happened.
PATIENCE = 300.0
#: Exit code where this machine lets nobody mount anything.
NO_MOUNTS = 77


class Started:
    """A stage whose exit code is that of `run(*arguments)`; `said` is its output."""

    def __init__(self, log: Path, run: Callable[..., int], *arguments: Any) -> None:
        self.log = log
        self.process = CONTEXT.Process(target=_child, args=(log, dict(os.environ), run, arguments))
        self.process.start()

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.is_file() else ""

    def when(self, true: Callable[[], bool], then: float = 0.0) -> Started:
        """Waits until the condition holds, and then `then` more seconds."""
        until = time.monotonic() + PATIENCE
        while not true():
            assert self.process.is_alive(), f"it ended before: {self.process.exitcode} {self.said}"
            assert time.monotonic() < until, f"it did not come to that: {self.said}"
            time.sleep(0.002)
        time.sleep(then)
        return self

    def below(self, word: str) -> list[psutil.Process]:
        """The processes that the stage started whose command line contains `word`."""
        found = []
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if word in " ".join(one.cmdline()):
                    found.append(one)
        return found

    def end(self, number: int) -> int:
        """Sends a signal and returns the exit code; all processes that the stage started must have ended, too."""
        below = psutil.Process(self.process.pid).children(recursive=True) if self.process.is_alive() else []
        os.kill(self.process.pid, number)
        code = self.wait()
        _, left = psutil.wait_procs(below, timeout=PATIENCE)
        assert not left, f"still there: {left}"
        return code

    def killed(self, number: int, run: Path, name: str) -> None:
        """Sends a signal; checks that the stage of this name ended by it, and what the folder of the run says."""
        code = self.end(number)
        if number == signal.SIGKILL:
            assert code == -number and read_status(run).state is RunState.died
        else:
            assert code == 128 + number and read_status(run).state is RunState.stopped, self.said
            told = f"{name} was ended by {signal.Signals(number).name}: the same command goes on where it was"
            assert told in self.said and "Traceback" not in self.said

    def wait(self) -> int:
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, f"it does not end: {self.said}"
        return self.process.exitcode


def _child(log: Path, environment: dict[str, str], run: Callable[..., int], arguments: tuple[Any, ...]) -> None:
    import torch

    os.environ |= environment  # not that of whom it was forked from

    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    code = run(*arguments)
    sys.stdout.flush()
    sys.exit(code)


def with_small_files(most: int, run: Callable[..., int], *arguments: Any) -> int:
    """Runs with a limit on the size of files, which has the effect of a full disk."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return run(*arguments)


def on_a_small_disk(most: int, folder: Path, kept: Path, run: Callable[..., int], *arguments: Any) -> int:
    """Runs with a small file system of `most` bytes mounted on `folder`, visible to this process alone; its files are
    copied to `kept` afterwards.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    users, mounts, private = 0x10000000, 0x00020000, 0x44000
    if libc.unshare(mounts) and libc.unshare(users | mounts):
        return NO_MOUNTS
    folder.mkdir()
    options = f"size={most}".encode()
    if libc.mount(b"none", b"/", None, private, None) or libc.mount(b"none", bytes(folder), b"tmpfs", 0, options):
        return NO_MOUNTS
    code = run(*arguments)
    shutil.copytree(folder, kept)
    return code


def command(words: list[str]) -> int:
    """`python -m kernel_assistant_training WORDS`."""
    from kernel_assistant_training.__main__ import main

    return main(words)
