"""What the process of a CPU candidate says of its own time is not used."""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_assistant.worker.runner_client import RunnerClient, RunnerCommand
from kernel_assistant.worker.timing import PlanSubject

PROGRAM = """
import sys, time
sys.path.insert(0, {folder!r})
from runner import wire
import socket
sock = socket.socket(fileno=int(sys.argv[1]))
wire.receive(sock)
wire.send(sock, {{"ok": True}})
while True:
    message, _ = wire.receive(sock)
    time.sleep(0.02 * message["count"])
    wire.send(sock, {{"ok": True, "seconds": 0.0, "device_ms": 1e-6, "ticket": message["ticket"]}})
"""


def test_a_forged_event_time_changes_nothing(tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[2] / "kernel_assistant" / "worker"
    program = tmp_path / "forger.py"
    program.write_text(PROGRAM.format(folder=str(folder)))
    runner = RunnerClient(RunnerCommand((sys.executable, str(program), "{fd}"), {}, "cpu"))
    try:
        runner.wait_ready()
        subject = PlanSubject(runner, 10)
        own, device = subject.both(0, 5)
        assert device == 0.0 and own > 0.09
        assert subject.run(0, 5) > 0.09
    finally:
        runner.close()
