"""The commands with `--host`: the jobs that they find on the remote machine, and the messages if something is wrong."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assistant.targets import cuda

pytestmark = pytest.mark.cluster


def expect(done, code, cause, next_step):
    """Checks that the command ended with `code`, one line with the cause and one line with the next step."""
    assert done.returncode == code, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[-2].startswith("error: ") and cause in lines[-2], done.stderr
    assert lines[-1].startswith("next: ") and next_step in lines[-1], done.stderr


@pytest.fixture
def restricted(sshd):
    """A function: programs → a machine whose PATH has only these programs and a Python."""

    def start(folder, *programs, **variables):
        folder.mkdir()
        for program in ("sh", *programs):
            (folder / program).symlink_to(shutil.which(program))
        python = folder / "python3"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        sshd.start(**{"PATH": str(folder), **variables})
        return python

    yield start
    sshd.start()


def test_doctor_looks_at_the_other_machine(sshd, run):
    done = run("doctor", "--host", "box", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["host"] == {"name": "box"}
    assert answer["works"]
    state = next(finding for finding in answer["findings"] if finding["name"] == "state folder")
    assert str(sshd.home) in state["found"]


def test_host_may_come_from_the_environment_and_none_is_this_machine(sshd, run):
    there = run("host", "status", "--json", KERNEL_ASSISTANT_HOST="nowhere")
    assert there.returncode == 3
    here = run("host", "status", "--host", "none", "--json", KERNEL_ASSISTANT_HOST="nowhere")
    assert (here.returncode, here.stdout.strip()) == (0, "null")


@pytest.mark.parametrize(
    ("name", "cause", "next_step"),
    [
        ("nowhere", "nowhere: ssh knows no such machine", "ssh nowhere has to work"),
        ("closed", "closed: nothing answers ssh there", "ssh closed has to work"),
        ("stranger", "stranger: authentication was refused", "ssh -o BatchMode=yes stranger true"),
        ("unknown", "unknown: its host key is not the known one", "ssh unknown"),
    ],
)
def test_no_way_to_the_machine(sshd, run, name, cause, next_step):
    expect(run("jobs", "--host", name), 3, cause, next_step)


@pytest.mark.parametrize("name", ["-oProxyCommand=touch x", "two words", "line\nbreak"])
def test_name_that_ssh_would_take_for_something_else(run, name):
    done = run("jobs", f"--host={name}")
    assert done.returncode == 2
    assert not Path("x").exists()


def test_no_ssh_here(run, here):
    expect(run("jobs", "--host", "box", PATH=str(here)), 3, "ssh is not installed here", "openssh-client")


def test_unknown_job(sshd, run):
    expect(run("attach", "77", "--host", "box"), 2, "box: no job '77'", "")
    expect(run("show", "77", "--host", "box"), 2, "box: no job '77'", "")


def test_no_python_there(sshd, run, restricted, tmp_path):
    python = restricted(tmp_path / "bin")
    python.unlink()
    expect(run("jobs", "--host", "box"), 3, "box: no Python of 3.11 or newer", "--remote-python")


def test_interpreter_without_torch(sshd, run, module, tmp_path):
    """This interpreter runs the tool too. Nothing is installed there, so the tool's dependencies were sent along."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    done = run("optimize", module, "--host", "box", "--remote-python", tmp_path / "bare")
    expect(done, 3, f"box: {tmp_path}/bare/bin/python has no torch", "--remote-python PATH")


def test_no_compiler_there(sshd, run, module, restricted, tmp_path):
    restricted(tmp_path / "bin")
    expect(run("optimize", module, "--host", "box"), 3, "box: no C++ compiler found", "g++")


@pytest.mark.skipif(bool(cuda.gpus()), reason="this machine has a GPU")
def test_no_gpu_there(sshd, run, module):
    done = run("optimize", module, "--host", "box", "--target", "cuda")
    expect(done, 3, "box: no NVIDIA GPU was found", "--target cpu")


def test_folder_that_cannot_be_written(sshd, run):
    expect(run("jobs", "--host", "box", "--remote-dir", "/dev/null/x"), 3, "box: /dev/null", "--remote-dir DIR")


def test_no_space_there(sshd, run, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        expect(run("jobs", "--host", "box", "--remote-dir", small), 3, f"are free in {small}", "free some there")
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.skipif(Path(pwd.getpwuid(os.getuid()).pw_shell).name != "bash", reason="needs bash as the login shell")
def test_shell_that_talks(sshd, run):
    start_up = sshd.home / ".bashrc"
    start_up.write_text("echo welcome\n")
    try:
        expect(run("jobs", "--host", "box"), 3, "box: its shell prints something", "ssh box true")
    finally:
        start_up.unlink()
