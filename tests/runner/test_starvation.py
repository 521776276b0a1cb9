"""Other work on the machine makes no candidate hang: time without a processor is not part of the timeout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.worker.running.runner_client import CandidateFailure, RunnerClient, RunnerCommand
from kernel_assistant.worker.running.starvation import longest_wait

WORKER = Path(__file__).resolve().parents[2] / "kernel_assistant" / "worker"
SLEEP, LOOP = 98, 99
#: A runner for which `count` is tenths of a second of processor time.
PROGRAM = f"""
import socket, sys, time
sys.path.insert(0, {str(WORKER)!r})
from runner import wire
sock = socket.socket(fileno=int(sys.argv[1]))
wire.receive(sock)
wire.send(sock, {{"ok": True}})
while True:
    message, _ = wire.receive(sock)
    count, began = message["count"], time.process_time()
    while count == {LOOP} or count != {SLEEP} and time.process_time() - began < 0.1 * count:
        pass
    if count == {SLEEP}:
        time.sleep(600)
    wire.send(sock, {{"ok": True, "ticket": message["ticket"]}})
"""
TIMEOUT = 1.0


@pytest.fixture
def one_processor() -> Iterator[None]:
    """This process and its children have one processor, which six others use all the time."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, mine)


@pytest.fixture
def runner(tmp_path: Path, one_processor: None) -> Iterator[RunnerClient]:
    program = tmp_path / "slow.py"
    program.write_text(PROGRAM)
    client = RunnerClient(RunnerCommand((sys.executable, str(program), "{fd}"), {}, "cpu"))
    try:
        client.wait_ready()
        yield client
    finally:
        client.close()


def test_a_runner_without_a_processor_is_waited_for(runner: RunnerClient) -> None:
    seconds, _ = runner.timed_run(0, 7, TIMEOUT)
    assert seconds > TIMEOUT
    runner.request({"op": "run", "count": 7}, TIMEOUT)


@pytest.mark.parametrize("count", [SLEEP, LOOP])
def test_what_sleeps_or_goes_on_for_ever_hangs(runner: RunnerClient, count: int) -> None:
    with pytest.raises(CandidateFailure) as failure:
        runner.request({"op": "run", "count": count}, TIMEOUT)
    assert failure.value.outcome == "hung"


def test_the_thread_that_waited_most_counts() -> None:
    before = {(1, 1): 5.0, (1, 2): 1.0}
    assert longest_wait(before, {(1, 1): 6.0, (1, 2): 4.0, (2, 2): 2.5}) == 3.0
    assert longest_wait(before, {}) == 0.0
