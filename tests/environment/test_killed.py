"""Tests a compiler that is killed, as the system does when memory runs out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from kernel_assistant.environment.builds.compile import Binary, CompileFailure, Compiler
from kernel_assistant.environment.builds.killed import KILLED_TWICE
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets.detect import detect
from tests.judge.kernels import candidate


@contextmanager
def killing(most: int) -> Iterator[list[int]]:
    """Kills the first `most` compilers below this process; the list has those that were killed."""
    killed, done = list[int](), threading.Event()

    def look() -> None:
        while len(killed) < most and not done.is_set():
            with suppress(psutil.Error):
                for child in psutil.Process(os.getpid()).children(recursive=True):
                    if child.name() == "cc1plus" and child.pid not in killed:
                        child.kill()
                        killed.append(child.pid)
            done.wait(0.005)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


def build(folder: Path, text: str) -> Binary | CompileFailure:
    compiler = Compiler(detect("cpu"), choose("auto"), folder, threading.Event())
    return compiler.build(candidate(("/*END*/", f"/* {text} */"), ("#include", "#include <regex>\n#include")))


def test_one_that_is_killed_is_asked_once_more(tmp_path: Path) -> None:
    with killing(1) as killed:
        built = build(tmp_path, "killed once")
    assert len(killed) == 1 and isinstance(built, Binary)


def test_one_that_is_killed_again_is_not_the_source_s_fault(tmp_path: Path) -> None:
    with killing(2) as killed:
        built = build(tmp_path, "killed twice")
    assert len(killed) == 2 and isinstance(built, CompileFailure)
    assert [one.message for one in built.diagnostics] == [KILLED_TWICE]
