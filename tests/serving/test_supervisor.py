"""Real engines that are killed, hang, or never become ready, and owners that disappear."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.serving.engine import EngineProcess, EngineSpec, answers
from kernel_assistant.serving.errors import EngineError, ModelNotFoundError
from kernel_assistant.serving.plan import plan
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.supervisor import ServerStatus, Supervisor, SupervisorTimeouts
from tests.serving.servers import below, environment, eventually, is_alive

HASTY = SupervisorTimeouts(first_pause=0.05, longest_pause=0.1, tries=3, calm=3600, look_every=0.02, health_every=0.1)


@pytest.fixture
def spec(tiny, settings):
    return plan(ServeRequest(model=str(tiny.gguf), engine="llama.cpp", context=256), settings)


@pytest.fixture
def healthy(spec):
    """An engine that answers."""
    process = EngineProcess(spec)
    try:
        assert eventually(process.healthy)
        yield process
    finally:
        process.stop()


@pytest.fixture
def script(spec, tmp_path):
    """A function: source → the specification of an engine that is this Python program."""

    def make(source: str) -> EngineSpec:
        file = tmp_path / "engine.py"
        file.write_text(source)
        return replace(spec, command=(sys.executable, str(file), str(spec.port)), environment=environment())

    return make


class Supervised:
    """A supervisor in a thread, and all of its messages."""

    def __init__(self, spec, patience=HASTY):
        self.said, self.stop, self.error = [], threading.Event(), None
        self._supervisor = Supervisor(spec, self.said.append, patience)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self._supervisor.run(self.stop)
        except KernelAssistantError as error:
            self.error = error

    def wait(self, status, times=1):
        assert eventually(lambda: [report.status for report in self.said].count(status) >= times or self.is_over())
        found = [report for report in self.said if report.status is status]
        assert len(found) >= times, self.said
        return found[times - 1]

    def is_over(self):
        return not self._thread.is_alive()

    def end(self):
        self.stop.set()
        self._thread.join()


@pytest.fixture
def supervise():
    started = []

    def start(*arguments):
        started.append(Supervised(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_a_killed_engine_comes_back_on_its_port(spec, supervise):
    server = supervise(spec)
    first = server.wait(ServerStatus.ready)
    engine = below(first.pid)[0]
    os.kill(engine, signal.SIGKILL)
    restarting = server.wait(ServerStatus.restarting)
    assert "llama.cpp ended (killed by signal 9)" in str(restarting.error)
    second = server.wait(ServerStatus.ready, times=2)
    assert second.restarts == 1 and second.pid != first.pid
    assert answers(spec.host, spec.port, spec.key)
    server.end()
    assert server.said[-1].status is ServerStatus.stopped
    assert not answers(spec.host, spec.port, spec.key)


def test_an_engine_that_keeps_ending_is_given_up(script, supervise):
    server = supervise(script("raise SystemExit('no luck today')"))
    failed = server.wait(ServerStatus.failed)
    assert failed.restarts == HASTY.tries - 1
    assert isinstance(server.error, EngineError)
    assert "exit code 1" in str(server.error) and "no luck today" in str(server.error)


def test_a_known_cause_is_final_at_once(spec, supervise, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    command = tuple(str(broken) if word.endswith(".gguf") else word for word in spec.command)
    server = supervise(replace(spec, command=command, source=str(broken)))
    failed = server.wait(ServerStatus.failed)
    assert failed.restarts == 0
    assert isinstance(server.error, ModelNotFoundError) and str(broken) in str(server.error)


def test_a_hanging_engine_is_replaced(spec, supervise, monkeypatch):
    monkeypatch.setattr("kernel_assistant.serving.engine.GRACE", 0.3)
    server = supervise(spec, replace(HASTY, silent_checks=1, calm=0))
    first = server.wait(ServerStatus.ready)
    os.kill(below(first.pid)[0], signal.SIGSTOP)
    restarting = server.wait(ServerStatus.restarting)
    assert "does not answer" in str(restarting.error)
    assert server.wait(ServerStatus.ready, times=2).pid != first.pid


def test_an_engine_that_never_gets_ready_is_ended(script, supervise):
    server = supervise(replace(script("import time\ntime.sleep(600)"), ready_seconds=0.5))
    server.wait(ServerStatus.failed)
    assert "was not ready after 0 s" in str(server.error) or "was not ready after 1 s" in str(server.error)


def test_the_whole_group_ends_though_it_ignores_that(script, monkeypatch):
    monkeypatch.setattr("kernel_assistant.serving.engine.GRACE", 0.3)
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    both = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {stubborn!r}])\n{stubborn}"
    process = EngineProcess(script(both))
    assert eventually(lambda: process.log_tail().count("up") == 2)
    everything = [process.pid, *below(process.pid)]
    assert len(everything) == 3
    process.stop()
    assert not any(map(is_alive, everything))


OWNER = """
import sys, time
from kernel_assistant.config import resolve
from kernel_assistant.serving.engine import EngineProcess
from kernel_assistant.serving.plan import plan
from kernel_assistant.serving.request import ServeRequest
process = EngineProcess(plan(ServeRequest(model=sys.argv[1], engine="llama.cpp"), resolve()[0]))
while not process.healthy():
    time.sleep(0.02)
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_engine_ends_with_its_owner(tiny, home, number):
    command, streams = [sys.executable, "-c", OWNER, str(tiny.gguf)], (subprocess.PIPE, subprocess.DEVNULL)
    with subprocess.Popen(command, env=environment(), stdout=streams[0], stderr=streams[1], text=True) as owner:
        leash = int(owner.stdout.readline())
        everything = [leash, *below(leash)]
        assert len(everything) >= 2
        owner.send_signal(number)
        owner.wait()
    assert eventually(lambda: not any(map(is_alive, everything)))


def test_a_taken_port_is_said_before_anything_starts(spec, healthy, settings, tiny):
    with pytest.raises(UsageError, match=f"port {spec.port} of 127.0.0.1 is taken"):
        plan(ServeRequest(model=str(tiny.gguf), engine="llama.cpp", port=spec.port), settings)


def test_a_port_that_is_taken_meanwhile_is_known_from_the_log(spec, healthy):
    second = EngineProcess(replace(spec, log=spec.log.with_name("second.log")))
    assert eventually(lambda: second.exit_code() is not None)
    error, final = second.cause()
    assert final and str(error) == f"port {spec.port} is taken"


def test_the_key_is_wanted_and_not_on_the_command_line(spec, healthy):
    connection = http.client.HTTPConnection(spec.host, spec.port)
    connection.request("POST", "/v1/chat/completions", b"{}", {"Authorization": "Bearer guess"})
    assert connection.getresponse().status == 401
    assert not any(spec.key in word for word in spec.command)
