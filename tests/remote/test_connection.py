"""Remote jobs, tiny ones, do not depend on the connection: it is killed, a job is cancelled, and found again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from kernel_assistant.config import resolve
from kernel_assistant.remote.ssh import Ssh
from kernel_assistant.session.start import find_host

pytestmark = pytest.mark.cluster

TINY_HOST = Path(__file__).parent.parent / "session" / "tiny_host.py"


@pytest.fixture
def tiny(sshd, here):
    """The session host on the remote side, whose jobs follow the instruction in the module's first line."""
    folder = sshd.settings.state_dir.parent
    environment = {**os.environ, "KERNEL_ASSISTANT_HOME": str(folder), "HOME": str(sshd.home)}
    child = subprocess.Popen([sys.executable, str(TINY_HOST)], env=environment)
    while (stream := find_host(sshd.settings)) is None:
        assert child.poll() is None
        time.sleep(0.01)
    stream.close()
    yield child
    child.kill()
    child.wait()


@pytest.fixture
def steered(module):
    """A function: what the job does → the module's path."""

    def write(what):
        module.write_text(f"# {what}\n{module.read_text()}")
        return module

    return write


def ssh_processes(parent):
    """The ssh processes that `parent` started, and the master connection, which is no longer its child."""
    ours = [process for process in psutil.Process(parent).children(recursive=True) if process.name() == "ssh"]
    assert ours
    control = Ssh("box", resolve()[0].runtime_dir).control
    others = psutil.process_iter(["name", "cmdline"])
    masters = [process for process in others if str(control) in " ".join(process.info["cmdline"] or ())]
    return {*ours, *(process for process in masters if process.info["name"] == "ssh")}


def started(module, text):
    """A process that optimizes the module over there and has printed a line with `text`."""
    command = [sys.executable, "-m", "kernel_assistant", "optimize", module, "--host", "box"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert any(text in line for line in child.stderr), f"nothing said {text!r}"
    return child


@pytest.mark.slow
def test_job_goes_on_when_the_connection_is_killed(tiny, run, here, steered):
    child = started(steered("tick 150"), "turn 5")
    for process in ssh_processes(child.pid):
        with suppress(psutil.NoSuchProcess):  # the one before may have taken it along
            process.kill()
    said = child.communicate()[1]
    assert child.returncode == 4
    assert "error: box: the connection was lost; what runs there goes on" in said
    job = re.search(r"next: kernel-assistant attach (\d+) --host box goes on with it", said)[1]

    row = next(row for row in json.loads(run("jobs", "--host", "box", "--json").stdout) if row["job"] == job)
    assert (row["state"], row["path"], row["host"]) == ("running", str(here / "net.py"), {"name": "box"})
    done = run("attach", job, "--host", "box", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["evaluations"] == 150
    assert document["host"]["job"] == job
    # Brought back once, under a number of this machine.
    again = json.loads(run("attach", job, "--host", "box", "--json").stdout)
    assert again["artifacts"] == document["artifacts"] == {"job": "1"}
    (row,) = json.loads(run("history", "--json").stdout)
    assert row["device"] == "cpu of box"


def test_interrupting_cancels_over_there(tiny, run, steered):
    child = started(steered("wait"), "pid")
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert child.returncode == 130
    rows = json.loads(run("jobs", "--all", "--host", "box", "--json").stdout)
    assert max(rows, key=lambda row: int(row["job"]))["state"] == "cancelled"


def test_detached_job_is_cancelled_by_its_number(tiny, run, steered):
    answer = json.loads(run("optimize", steered("wait"), "--host", "box", "--detach", "--json").stdout)
    assert answer["host"]["job"] == answer["job"]
    assert "is stopping" in run("cancel", answer["job"], "--host", "box").stdout


def test_failure_of_a_job_is_said_as_one_of_that_machine(tiny, run, steered):
    done = run("optimize", steered("fail"), "--host", "box")
    assert done.returncode == 3
    assert "error: box: no compiler\nnext: install one\n" in done.stderr


def test_session_host_that_dies_is_not_taken_for_a_lost_connection(tiny, run, steered):
    child = started(steered("wait"), "pid")
    tiny.kill()
    said = child.communicate()[1]
    assert child.returncode == 4 and "error: box: the session host" in said


@pytest.mark.slow
def test_recording_of_a_scan_travels_with_the_module(tiny, sshd, run, here, module):
    module.write_text(f"# tick 1\n{module.read_text().partition('def get_inputs')[0]}")
    (here / "program.py").write_text("import torch\nfrom net import Net\nNet()(torch.randn(64, 4096))\n")
    done = run("scan", "--", sys.executable, "program.py")
    assert done.returncode == 0, done.stderr
    done = run("optimize", "--scan", "last:Net", "--host", "box", "--json")
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["host"]["folder"]) / "projects"
    (recording,) = folder.glob("*/*/.recording")
    assert {"module.pt", "inputs-0.pt"} <= {path.name for path in recording.iterdir()}
