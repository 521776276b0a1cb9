"""The lock of a device, between threads and between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kernel_assistant.worker.device_lock import DeviceLock

#: Uses the device, says so each time, and is alone now and then while it does.
WORK = """
import os, sys, time
from kernel_assistant.worker.device_lock import DeviceLock
folder, log = sys.argv[1:]
written = os.open(log, os.O_WRONLY | os.O_APPEND)
lock = DeviceLock(folder)
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    with lock.shared(first=number % 2 == 1):
        os.write(written, b"in\\n")
        time.sleep(0.001)
        os.write(written, b"out\\n")
        with lock.exclusive():
            os.write(written, b"alone\\n")
            time.sleep(0.001)
            os.write(written, b"done\\n")
        with lock.shared():
            os.write(written, b"in\\n")
        os.write(written, b"out\\n")
"""
HOLD = """
import sys
from kernel_assistant.worker.device_lock import DeviceLock
with DeviceLock(sys.argv[1]).exclusive():
    print("in", flush=True)
    sys.stdin.read()
"""


class Ended(Exception):
    """The exception that a check raises."""


def _start(code: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _run(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _until_waiting(folder: Path, count: int) -> None:
    """Waits until `count` processes wait for the lock's files, by the system's list: `->` marks who waits."""
    inodes = {str(path.stat().st_ino) for path in folder.glob("*.lock")}
    while True:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
        if sum(fields[6].rpartition(":")[2] in inodes for fields in lines) >= count:
            return
        time.sleep(0.01)


def test_nobody_uses_the_device_while_somebody_is_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    processes = [_start(WORK, str(tmp_path), str(log)) for _ in range(4)]
    assert [_line(process) for process in processes] == ["ready\n"] * 4
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * 4
    inside, lines = 0, iter(log.read_text().splitlines())
    for line in lines:
        if line == "alone":
            assert (inside, next(lines)) == (0, "done")
        else:
            inside += 1 if line == "in" else -1
    assert inside == 0


def test_threads_of_a_process_wait_for_each_other_with_one_object_and_with_several(tmp_path: Path) -> None:
    one, inside, seen = DeviceLock(tmp_path), list[str](), list[tuple[str, ...]]()

    def enter(lock: DeviceLock, kind: str) -> None:
        for _ in range(15):
            with lock.exclusive() if kind == "alone" else lock.shared(first=True):
                inside.append(kind)
                seen.append(tuple(inside))
                time.sleep(0.002)
                inside.remove(kind)

    kinds = [(one, "beside"), (DeviceLock(tmp_path), "beside"), (one, "alone"), (DeviceLock(tmp_path), "alone")]
    _run(*(threading.Thread(target=enter, args=each) for each in kinds))
    assert {each for each in seen if "alone" in each} == {("alone",)}
    assert ("beside", "beside") in seen


def test_a_process_that_is_killed_leaves_the_device(tmp_path: Path) -> None:
    holder = _start(HOLD, str(tmp_path))
    assert _line(holder) == "in\n"
    holder.kill()
    with DeviceLock(tmp_path).exclusive():
        assert holder.wait() < 0


def test_a_turn_ends_also_where_the_device_is_lost(tmp_path: Path) -> None:
    def lost() -> None:
        raise RuntimeError("CUDA error")

    lock = DeviceLock(tmp_path, lost)
    with pytest.raises(RuntimeError), lock.shared(), lock.exclusive():
        pass
    with DeviceLock(tmp_path).exclusive():
        pass


@pytest.mark.parametrize(
    ("first", "order"), [(False, ["alone", "alone", "beside"]), (True, ["beside", "alone", "alone"])]
)
def test_who_waits_to_be_alone_goes_first_unless_newcomers_do(tmp_path: Path, first: bool, order: list[str]) -> None:
    ours, entered = DeviceLock(tmp_path), list[str]()

    def enter(kind: str) -> None:
        lock = DeviceLock(tmp_path)
        with lock.exclusive() if kind == "alone" else lock.shared(first=first):
            entered.append(kind)

    threads = [threading.Thread(target=enter, args=(kind,)) for kind in ("alone", "beside", "alone")]
    with ours.shared():
        for number, thread in enumerate(threads, 1):
            thread.start()
            if first and number > 1:
                threads[1].join()
            _until_waiting(tmp_path, number - (first and number > 1))
        assert entered == order[: int(first)]
    for thread in threads:
        thread.join()
    assert entered == order


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_a_wait_can_be_cancelled_and_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    asked = list[int]()

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise Ended

    holder = _start(HOLD, str(tmp_path))
    assert _line(holder) == "in\n"
    lock = DeviceLock(tmp_path)
    enter: Callable[..., object] = getattr(lock, kind)
    with pytest.raises(Ended), enter(check):  # type: ignore[attr-defined]
        raise AssertionError("somebody else is alone")
    assert lock.waited > 0
    holder.communicate()
    with DeviceLock(tmp_path).exclusive(), lock.shared():
        pass


def test_patience_ends_with_those_who_share_and_not_with_who_is_alone(tmp_path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with DeviceLock(tmp_path).exclusive(patience=0.05):
            entered.set()

    with DeviceLock(tmp_path).shared():
        _run(threading.Thread(target=enter))
    assert entered.is_set()
    entered.clear()
    with DeviceLock(tmp_path).exclusive():
        thread = threading.Thread(target=enter)
        thread.start()
        _until_waiting(tmp_path, 1)
        thread.join(0.3)
        assert not entered.is_set()
    thread.join()
    assert entered.is_set()


def test_a_turn_inside_another_changes_nothing_whichever_object_it_is_of(tmp_path: Path) -> None:
    ours, other = DeviceLock(tmp_path), DeviceLock(tmp_path)
    with ours.exclusive(), other.exclusive(), other.shared(), ours.shared():
        pass
    with ours.shared(), other.shared(), other.exclusive(), ours.shared():
        pass


def test_without_a_folder_nobody_waits() -> None:
    with DeviceLock().exclusive(), DeviceLock().exclusive():
        pass


def test_a_lock_that_is_released_is_free_and_taken_again(tmp_path: Path) -> None:
    ours = DeviceLock(tmp_path)

    def check() -> None:
        raise Ended

    def is_free() -> bool:
        """Whether another thread can be alone now."""
        alone: list[bool] = []

        def enter() -> None:
            with suppress(Ended), DeviceLock(tmp_path).exclusive(check):
                alone.append(True)

        _run(threading.Thread(target=enter))
        return bool(alone)

    with ours.released():
        assert is_free()
    for hold in (ours.shared, ours.exclusive):
        with hold():
            with ours.released():
                assert is_free()
            assert not is_free()
    assert is_free()
