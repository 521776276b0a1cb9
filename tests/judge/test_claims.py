"""Tests that a candidate's process cannot shorten its time, and that other work does not shorten it either."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kernel_assistant.worker.measuring.timing import PlanSubject
from kernel_assistant.worker.running.runner_client import EMPTY_BLOCKS, RunnerClient, RunnerCommand

PROGRAM = """
import itertools, sys, time
sys.path.insert(0, {folder!r})
from runner import wire
import socket
sock = socket.socket(fileno=int(sys.argv[1]))
wire.receive(sock)
wire.send(sock, {{"ok": True}})
for number in itertools.count():
    message, _ = wire.receive(sock)
    time.sleep({empty} if message["count"] == 0 and number < {slow} else 0.02 * message["count"])
    wire.send(sock, {{"ok": True, "seconds": 0.0, "device_ms": 1e-6, "ticket": message["ticket"]}})
"""


@contextmanager
def runner(tmp_path: Path, empty: float = 0.0, slow: int = 0) -> Iterator[RunnerClient]:
    """A runner whose calls take 20 ms each, and whose first `slow` empty messages take `empty` seconds."""
    folder = Path(__file__).resolve().parents[2] / "kernel_assistant" / "worker"
    program = tmp_path / "forger.py"
    program.write_text(PROGRAM.format(folder=str(folder), empty=empty, slow=slow))
    with closing(RunnerClient(RunnerCommand((sys.executable, str(program), "{fd}"), {}, "cpu"))) as client:
        client.wait_ready()
        yield client


def test_a_forged_event_time_changes_nothing(tmp_path: Path) -> None:
    with runner(tmp_path) as client:
        subject = PlanSubject(client, 10)
        own, device = subject.both(0, 5)
        assert device == 0.0 and own > 0.09
        assert subject.run(0, 5) > 0.09


def test_empty_messages_that_were_slow_at_the_start_shorten_no_time(tmp_path: Path) -> None:
    with runner(tmp_path, empty=0.2, slow=EMPTY_BLOCKS) as client:
        assert client.empty_seconds > 0.19
        subject = PlanSubject(client, 10)
        subject.wake()
        assert subject.run(0, 5) > 0.05
