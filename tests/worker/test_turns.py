"""Turns of judges that share a device: who is timed is alone, and nobody waits for ever."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

from kernel_assistant.worker.turns import Turns

SPAWN = multiprocessing.get_context("spawn")
JUDGES, CANDIDATES = 6, 8


def _judge(folder: str, said: Any) -> None:
    """As a judge does it: beside others, and within it three times alone."""
    turns = Turns(folder)
    for _ in range(CANDIDATES):
        with turns.beside():
            said.append((os.getpid(), "beside", 1, time.monotonic()))
            time.sleep(0.001)
            said.append((os.getpid(), "beside", -1, time.monotonic()))
            for _ in range(3):
                with turns.alone():
                    said.append((os.getpid(), "alone", 1, time.monotonic()))
                    time.sleep(0.0005)
                    said.append((os.getpid(), "alone", -1, time.monotonic()))
                said.append((os.getpid(), "beside", 1, time.monotonic()))
                said.append((os.getpid(), "beside", -1, time.monotonic()))
    turns.close()


def test_nobody_is_at_work_beside_who_is_alone_and_all_come_to_an_end(tmp_path: Path) -> None:
    with SPAWN.Manager() as manager:
        said = manager.list()
        judges = [SPAWN.Process(target=_judge, args=(str(tmp_path), said)) for _ in range(JUDGES)]
        for judge in judges:
            judge.start()
        for judge in judges:
            judge.join(60)
        assert [judge.exitcode for judge in judges] == [0] * JUDGES
        events = sorted(said, key=lambda one: one[3])
    inside = {"alone": 0, "beside": 0}
    most = 0
    for _, what, change, _ in events:
        inside[what] += change
        most = max(most, inside["beside"])
        assert inside["alone"] <= 1 and not (inside["alone"] and inside["beside"])
    assert len(events) == JUDGES * CANDIDATES * 14 and most > 1


def _dies_alone(folder: str, there: Any) -> None:
    with Turns(folder).alone():
        there.set()
        time.sleep(60)


def test_who_dies_leaves_its_turn(tmp_path: Path) -> None:
    there = SPAWN.Event()
    judge = SPAWN.Process(target=_dies_alone, args=(str(tmp_path), there))
    judge.start()
    assert there.wait(30) and judge.pid is not None
    os.kill(judge.pid, signal.SIGKILL)
    judge.join()
    turns = Turns(str(tmp_path))
    with turns.beside(), turns.alone():
        pass
    turns.close()


def test_those_who_want_to_be_alone_come_before_those_who_come_in(tmp_path: Path) -> None:
    """One is beside others, two want to be alone, then one wants to come in: it is the last."""
    with SPAWN.Manager() as manager:
        order, turns = manager.list(), Turns(str(tmp_path))
        asked = [SPAWN.Process(target=_once, args=(str(tmp_path), kind, order)) for kind in ("alone", "alone", "beside")]
        with turns.beside():
            for number, one in enumerate(asked):
                one.start()
                while len([word for word in order if word == "asks"]) <= number:
                    time.sleep(0.01)
                time.sleep(0.1)  # from its word to its lock
        for one in asked:
            one.join(30)
        assert [word for word in order if word != "asks"] == ["alone", "alone", "beside"]
        turns.close()


def _once(folder: str, kind: str, order: Any) -> None:
    turns = Turns(folder)
    order.append("asks")
    with turns.alone() if kind == "alone" else turns.beside():
        order.append(kind)
        time.sleep(0.05)
