"""Tests a compiler that is killed, as the system does when memory runs out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from kernel_assistant.environment.builds.compile import Binary, CompileFailure, Compiler
from kernel_assistant.environment.builds.killed import KILLED_TWICE
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


@pytest.mark.parametrize("times", [1, 2])
def test_one_that_is_killed_is_asked_once_more_and_is_no_fault_of_the_source(compiler: Compiler, times: int) -> None:
    edits = ("/*END*/", f"/* killed {times} times */"), ("#include", "#include <regex>\n#include")
    with killing(times) as killed:
        built = compiler.build(candidate(*edits))
    assert len(killed) == times
    if times == 1:
        assert isinstance(built, Binary)
    else:
        assert isinstance(built, CompileFailure)
        assert [one.message for one in built.diagnostics] == [KILLED_TWICE]
