"""Tests the commands around jobs against a real host whose jobs are tiny."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from kernel_assistant.records import JobOutcome, OptimizeResult, decode
from kernel_assistant.serving.registry import SHIPPED
from kernel_assistant.session.client import Client
from kernel_assistant.store import JobState, Store
from tests.common.commands import run_here


def test_json_is_one_object_and_nothing_else(run, tiny, module):
    done = run("optimize", module("tick 3"), "--json")
    assert done.returncode == 0 and done.stderr == ""
    result = decode(done.stdout, OptimizeResult)
    assert result.outcome is JobOutcome.no_candidate and result.evaluations == 3
    assert done.stdout.count("\n") == 1


def test_progress_goes_to_stderr_and_the_report_to_stdout(tiny, module):
    done = run_here("optimize", module("tick 3"))
    assert done.returncode == 0
    assert "turn 2" in done.stderr and "turn" not in done.stdout
    assert "model.py:Net on tiny (cpu): no correct candidate was found" in done.stdout
    assert "\x1b[" not in done.stdout + done.stderr


def test_a_gate_that_is_not_met_is_exit_code_one(tiny, module):
    assert run_here("optimize", module("tick 1"), "--fail-under", "1.05").returncode == 1


def test_failures_of_the_job_keep_their_exit_code(tiny, module):
    missing = run_here("optimize", module("fail"))
    assert missing.returncode == 3
    assert missing.stderr.endswith("error: no compiler\nnext: install one\n")
    bug = run_here("optimize", module("bug"), "--json")
    told = decode(bug.stdout, OptimizeResult)
    assert (bug.returncode, told.outcome, told.obstacles[0].check) == (4, JobOutcome.failed, "judge")
    assert told.obstacles[0].next_step.startswith("report this") and "by design" in told.obstacles[0].message
    shown = run_here("show", "last")
    assert "error: internal ZeroDivisionError: by design\ntry: report this" in shown.stdout
    assert bug.stderr.startswith("error: internal ZeroDivisionError: by design\nnext: ")


def test_a_detached_job_is_watched_later(tiny, module):
    started = run_here("optimize", module("tick 20"), "--detach", "--json")
    job = json.loads(started.stdout)["job"]
    done = run_here("attach", job, "--json")
    assert (decode(done.stdout, OptimizeResult).evaluations, json.loads(done.stdout)["job"]) == (20, int(job))
    assert decode(run_here("attach", "last", "--json").stdout, OptimizeResult).evaluations == 20


def test_the_lists_and_the_report(tiny, module):
    waiting = json.loads(run_here("optimize", module("wait"), "--detach", "--json").stdout)["job"]
    ended = run_here("optimize", module("tick 1", "other.py"), "--target", "cpu", "--detach")
    assert f"job {int(waiting) + 1}" in ended.stdout
    assert [row["state"] for row in json.loads(run_here("jobs", "--json").stdout)] == ["queued", "running"]
    assert "model.py:Net" in run_here("jobs").stdout
    assert "is stopping" in run_here("cancel", waiting).stdout or "cancelled" in run_here("cancel", waiting).stdout
    run_here("attach", int(waiting) + 1)
    assert [row["job"] for row in json.loads(run_here("history", "--json").stdout)] == [str(int(waiting) + 1), waiting]
    assert [row["job"] for row in json.loads(run_here("history", "other.py", "--json").stdout)] == [
        str(int(waiting) + 1)
    ]
    shown = run_here("show")
    assert "other.py" in shown.stdout and "Evaluations of the search" in shown.stdout and "correct" in shown.stdout
    assert len(json.loads(run_here("show", "--json").stdout)["steps"]) == 1
    assert run_here("jobs").stdout.startswith("no job is running")


def test_what_is_said_to_nobody_is_refused_and_the_last_job_is_named(tiny, module):
    job = json.loads(run_here("optimize", module("wait"), "--policy", "generator", "--detach", "--json").stdout)["job"]
    unheard = run_here("say", "last", "use", "shared", "memory")
    assert (unheard.returncode, unheard.stdout) == (2, "")
    assert f"job {job} reads nothing: its kernels are the generator's" in unheard.stderr and "next: " in unheard.stderr
    assert run_here("cancel", "last").stdout in (f"job {job} is stopping\n", f"job {job} is cancelled\n")


def test_ctrl_c_cancels_the_job_and_exits_130(settings, command, tiny, module):
    child = subprocess.Popen(command("optimize", module("wait")), stdout=-1, stderr=-1, text=True)
    assert any("pid" in line for line in child.stderr)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130 and "cancelled" in out
    assert Store(settings.state_dir).job("last").state is JobState.cancelled


def test_ctrl_c_does_not_wait_for_a_host_that_hangs(command, tiny, module):
    child = subprocess.Popen(command("optimize", module("wait")), stdout=-1, stderr=-1, text=True)
    assert any("pid" in line for line in child.stderr)
    os.kill(tiny.pid, signal.SIGSTOP)
    child.send_signal(signal.SIGINT)
    _, rest = child.communicate(timeout=60)
    os.kill(tiny.pid, signal.SIGCONT)
    assert child.returncode == 130
    assert "error: cancelled, the host is still cleaning up" in rest


def test_ctrl_c_in_attach_leaves_the_job_running(settings, command, tiny, module):
    job = json.loads(run_here("optimize", module("wait"), "--detach", "--json").stdout)["job"]
    child = subprocess.Popen(command("attach", job), stdout=-1, stderr=-1, text=True)
    assert any("pid" in line for line in child.stderr)
    child.send_signal(signal.SIGINT)
    _, rest = child.communicate(timeout=60)
    assert child.returncode == 130 and f"job {job} goes on" in rest
    assert [row.state for row in Client(settings).jobs()] == [JobState.running]


def test_a_reader_that_leaves_is_no_error(command, home):
    child = subprocess.Popen(command("--help"), stdout=-1, stderr=-1)
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(timeout=60) == 0
    child.stderr.close()


def test_the_host_can_be_asked_and_stopped(tiny):
    assert f"pid {tiny.pid}" in run_here("host", "status").stdout
    assert json.loads(run_here("host", "status", "--json").stdout)["active_jobs"] == 0
    stopper = subprocess.Popen([sys.executable, "-m", "kernel_assistant", "host", "stop"], stdout=-1, text=True)
    tiny.wait(timeout=60)
    assert stopper.communicate()[0] == "stopped\n"
    assert run_here("host", "stop").stdout == "no session host runs\n"


def test_doctor_says_what_is_there_and_what_is_missing(home):
    done = run_here("doctor", "--json")
    names = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert {"Python with torch", "C++ compiler", "sandbox bubblewrap", "state folder", "session host"} <= set(names)
    assert names["language model"]["cost"] == ("" if SHIPPED.is_file() else "the generator writes kernels alone")
    assert done.returncode == 0
    named = run_here("doctor", "--json", KERNEL_ASSISTANT_MODEL="http://localhost:1/v1")
    assert "localhost" in next(
        each["found"] for each in json.loads(named.stdout)["findings"] if "model" in each["name"]
    )
    broken = run_here("doctor", "--python", "/bin/true")
    assert broken.returncode == 3
    assert "cost: nothing can be optimized" in broken.stdout and "next: " in broken.stdout


def test_doctor_without_a_compiler(home):
    done = run_here("doctor", "--json", PATH="/nonexistent", CXX="", CUDA_HOME="/nonexistent")
    lack = next(item for item in json.loads(done.stdout)["findings"] if item["name"] == "C++ compiler")
    assert not lack["ok"] and lack["cost"] and "g++" in lack["next_step"]


def test_help_imports_neither_torch_nor_rich_nor_the_commands(home):
    code = (
        "import sys; from kernel_assistant.cli import main; code = main(['--help'])\n"
        "heavy = {'torch', 'numpy', 'rich', 'sqlite3', 'msgspec', 'pynvml', 'kernel_assistant.session.client'}\n"
        "print(sorted(heavy & set(sys.modules)), code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[] 0\n"
