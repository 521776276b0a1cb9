"""Judges that share a device, in processes of their own: nobody is at work while somebody is timed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernel_assistant.records import Outcome, Tier
from kernel_assistant.worker.turns import Turns
from tests.judge import kernels

#: Comes in and goes out, says so each time, and is alone now and then while it is in.
WORK = """
import os, sys, time
from kernel_assistant.worker.turns import Turns
folder, log = sys.argv[1:]
said = os.open(log, os.O_WRONLY | os.O_APPEND)
turns = Turns(folder)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60):
    with turns.beside():
        os.write(said, b"in\\n")
        time.sleep(0.001)
        os.write(said, b"out\\n")
        with turns.alone():
            os.write(said, b"alone\\n")
            time.sleep(0.001)
            os.write(said, b"done\\n")
        with turns.beside():
            os.write(said, b"in\\n")
        os.write(said, b"out\\n")
"""


def _start(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_env()
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_nobody_is_at_work_while_somebody_is_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    processes = [_start(WORK, str(tmp_path), str(log)) for _ in range(4)]
    assert [_line(process) for process in processes] == ["ready\n"] * 4
    for process in processes:
        _go(process)
    assert [process.wait() for process in processes] == [0] * 4
    inside, waits = 0, iter(log.read_text().splitlines())
    for line in waits:
        if line == "alone":
            assert (inside, next(waits)) == (0, "done")
        else:
            inside += 1 if line == "in" else -1
    assert inside == 0


def test_who_is_killed_leaves_its_turn(tmp_path: Path) -> None:
    held = _start(
        "import sys\nfrom kernel_assistant.worker.turns import Turns\nturns = Turns(sys.argv[1])\n"
        "with turns.alone():\n    print('in', flush=True)\n    sys.stdin.read()",
        str(tmp_path),
    )
    assert _line(held) == "in\n"
    held.kill()
    with Turns(str(tmp_path)).alone():
        assert held.wait() < 0


def test_who_has_lost_the_device_leaves_its_turn(tmp_path: Path) -> None:
    def lost() -> None:
        raise RuntimeError("CUDA error")

    turns, other = Turns(str(tmp_path), lost), Turns(str(tmp_path))
    with pytest.raises(RuntimeError), turns.beside(), turns.alone():
        pass
    with other.alone():
        pass
    turns.close()
    other.close()


def test_all_who_want_to_be_alone_come_before_those_who_come_in(tmp_path: Path) -> None:
    """So that who is inside leaves once for all of them."""
    ours, order = Turns(str(tmp_path)), list[str]()
    others = [Turns(str(tmp_path)) for _ in range(3)]

    def enter(turns: Turns, kind: str) -> None:
        with turns.alone() if kind == "alone" else turns.beside():
            order.append(kind)

    kinds = ("alone", "beside", "alone")
    threads = [threading.Thread(target=enter, args=each) for each in zip(others, kinds, strict=True)]
    with ours.beside():
        for number, thread in enumerate(threads, 1):
            thread.start()
            while _waiting(tmp_path / "room.lock") + _waiting(tmp_path / "gate.lock") < number:
                time.sleep(0.01)
        assert not order
    for thread in threads:
        thread.join()
    assert order == ["alone", "alone", "beside"]
    for turns in (ours, *others):
        turns.close()


def test_a_candidate_is_timed_alone_and_all_else_is_not(tmp_path: Path, cache: Path) -> None:
    ours = Turns(str(tmp_path))
    worker = kernels.new_worker(cache / "worker.log")
    with kernels.environment(worker, cache, turns=tmp_path) as environment:
        found = []
        thread = threading.Thread(target=lambda: found.extend(environment.evaluate([kernels.candidate()], Tier.quick)))
        with ours.beside():
            thread.start()
            # It was verified beside us, and now there is something to time.
            while not _waiting(tmp_path / "room.lock"):
                assert thread.is_alive()
                time.sleep(0.02)
            assert not found
        thread.join()
        timing = found[0].timing
        assert found[0].outcome is Outcome.correct and timing is not None and timing.samples == 5
        with ours.alone():
            pass
    worker.close()
    ours.close()


def _waiting(path: Path) -> int:
    """How many want this lock for themselves, by the system's list: `->` is somebody who waits for the one above."""
    inode = path.stat().st_ino
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return sum(fields[4] == "WRITE" and fields[6].endswith(f":{inode}") for fields in waiting)
