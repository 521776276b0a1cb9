"""Tests that a worker's log stays short whatever the user's module prints, and keeps its beginning and its end."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_assistant.environment import worker_log
from kernel_assistant.environment.ceilings import ceilings_of
from kernel_assistant.environment.template_key import VARIABLE
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.environment.worker_log import HEAD, LONGEST, TAIL, shorten, watch
from kernel_assistant.errors import WorkerError
from kernel_assistant.records import to_builtins
from kernel_assistant.targets.detect import detect
from tests.common.tasks import task_of

Wait = Callable[[Callable[[], object]], None]
#: Prints 40 MB, waits until that was cut, prints once more and is killed.
TALKS = f"""
import os, signal, time
print("first words")
for number in range(400_000):
    print(f"{{number:99}}")
print("", end="", flush=True)
while os.fstat(2).st_size > {LONGEST}:
    time.sleep(0.02)
os.write(1, b"last words")
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_out(text: bytes) -> int:
    """The number of bytes that a line of the log reports as left out."""
    (found,) = re.findall(rb"\n\[ *(\d+) bytes of this log were left out here\]\n", text)
    return int(found)


def shortened(log: Path) -> bytes:
    """The content of the log after it was cut."""
    with open(log, "r+b") as file:
        shorten(file.fileno())
    return log.read_bytes()


def watchers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "worker-log"}


@pytest.mark.parametrize("templates", ["on", "off"])
def test_what_a_module_prints_without_end_is_cut_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: Wait, templates: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    log, before = tmp_path / "worker.log", watchers()
    worker = WorkerClient(sys.executable, log=log, env={VARIABLE: "off"} if templates == "off" else {})
    worker.start()
    task = task_of(tmp_path / "m.py", TALKS, module_name="m")
    params = {"task": to_builtins(task), "device": 0, "seconds": 0.1, "ceilings": ceilings_of(detect("cpu"))}
    with pytest.raises(WorkerError, match="SIGKILL"):
        worker.call("profile_lines", params, timeout=60.0)
    worker.close()
    text = log.read_bytes()
    assert len(text) <= LONGEST
    assert b"first words" in text[:HEAD] and text.endswith(b"last words")
    assert left_out(text) > 30_000_000
    wait_for(lambda: watchers() <= before)


def test_every_byte_is_there_or_counted_when_it_is_cut_again_and_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    written = b""
    for begin in range(0, 900_000, 300_000):
        more = b"".join(b"%15d\n" % number for number in range(begin, begin + 300_000))
        written += more
        with open(log, "ab") as sink:
            sink.write(more)
        text = shortened(log)
    assert text[:HEAD] == written[:HEAD] and text[-TAIL:] == written[-TAIL:]
    notice = len(text) - HEAD - TAIL
    assert 0 < notice < 100 and left_out(text) == len(written) - HEAD - TAIL


def test_a_short_log_is_left_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * LONGEST)
    assert shortened(log) == b"x" * LONGEST


def test_a_log_that_two_share_and_that_gets_another_name_is_cut(tmp_path: Path, wait_for: Wait) -> None:
    log, ended = tmp_path / "log", threading.Event()
    with open(log, "ab", buffering=0) as one, open(log, "ab", buffering=0) as two:
        watch(one, ended)
        watch(two, ended)
        older = log.replace(tmp_path / "log.old")
        for number in range(100_000):
            (one, two)[number % 2].write(b"%99d\n" % number)
        wait_for(lambda: older.stat().st_size <= LONGEST)
        one.write(b"last words")
    ended.set()
    assert older.read_bytes().endswith(b"last words")
    assert left_out(older.read_bytes()) > 0


def test_one_that_writes_faster_than_we_copy_does_not_keep_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (2 * LONGEST))
    read = os.pread

    def read_while_more_comes(file: int, size: int, offset: int) -> bytes:
        with open(log, "ab") as sink:
            sink.write(b"y" * TAIL)
        return read(file, size, offset)

    monkeypatch.setattr(os, "pread", read_while_more_comes)
    shortened(log)
    assert log.stat().st_size <= HEAD + (worker_log.MOST_COPIES + 1) * TAIL


@pytest.mark.parametrize("name", [os.devnull, "/dev/full"])
def test_what_is_no_plain_file_is_left_alone(name: str) -> None:
    before = watchers()
    with open(name, "ab") as sink:
        watch(sink, threading.Event())
    assert watchers() <= before
