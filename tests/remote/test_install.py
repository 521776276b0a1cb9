"""Tests, with a real sshd, which files are sent, which are there already, and which are deleted on the remote side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import InternalError, MissingError
from kernel_assistant.remote import install
from kernel_assistant.remote.closure import SourceClosure
from kernel_assistant.remote.install import Installer
from kernel_assistant.remote.ssh import Ssh

pytestmark = pytest.mark.cluster

DAY = 24 * 3600


@pytest.fixture
def installer(sshd, here):
    """A connection with a folder of its own on the remote side."""

    def start(folder=here / "there"):
        return Installer(Ssh("box", resolve()[0].runtime_dir), str(folder), "")

    return start


def closure(folder, **files):
    names = {name.replace("_", "/") + ".py": content for name, content in files.items()}
    return SourceClosure(root=folder, files=names, path="", search_path=(), recording="")


def ship(installer, found):
    with installer() as one:
        return one.ship(found)


def test_only_changes_travel(installer, here):
    first = ship(installer, closure(here, a=b"1", b_c=b"22"))
    assert (first.files, first.bytes) == (2, 3)
    assert (Path(first.root) / "b/c.py").read_bytes() == b"22"
    assert ship(installer, closure(here, a=b"1", b_c=b"22")).files == 0
    # One file is new; the folder of the first state stays as it is.
    second = ship(installer, closure(here, a=b"1", b_c=b"333"))
    assert (second.files, second.bytes) == (1, 3)
    assert (Path(first.root) / "b/c.py").read_bytes() == b"22"
    assert (Path(second.root) / "b/c.py").read_bytes() == b"333"


def test_tool_travels_once(installer):
    for travels in (True, False):
        with installer() as one:
            assert (one.installed.sent_bytes > 0) is travels


def test_damaged_content_travels_again(installer, here):
    ship(installer, closure(here, a=b"1"))
    (blob,) = (here / "there/blobs").glob("*/*")
    blob.write_bytes(b"?")
    again = ship(installer, closure(here, a=b"1", b=b"2"))
    assert (again.files, (Path(again.root) / "a.py").read_bytes()) == (2, b"1")


def test_what_was_not_used_for_a_month_is_forgotten(installer, here):
    old = Path(ship(installer, closure(here, a=b"1")).root)
    new = Path(ship(installer, closure(here, a=b"2")).root)
    tool = here / "there/tool/0.0.1-old"
    tool.mkdir()
    long_ago = time.time() - 31 * DAY
    for path in (old, tool, *(here / "there/blobs").glob("*/*")):
        os.utime(path, (long_ago, long_ago))
    with installer():
        pass
    assert (old.exists(), tool.exists(), new.exists()) == (False, False, True)
    assert list((here / "there/blobs").glob("*/*")) == []


def test_file_that_would_leave_its_folder_is_refused(installer, here):
    with installer() as one, pytest.raises(InternalError, match="leads out of its folder"):
        one.ship(SourceClosure(root=here, files={"../x": b"1"}, path="", search_path=(), recording=""))
    assert not list(here.rglob("x"))


def test_python_of_another_version_without_an_index(sshd, installer, monkeypatch):
    """No package of ours fits this Python, and its own pip finds none."""
    monkeypatch.setattr(install, "dependencies", lambda tag: None)
    sshd.start(PIP_NO_INDEX="1", PIP_FIND_LINKS="/nowhere")
    try:
        with pytest.raises(MissingError, match="what this tool needs cannot be installed there") as caught, installer():
            pass
    finally:
        sshd.start()
    assert "--remote-python" in caught.value.next_step


def test_busy_session_host_of_older_code(sshd, run, module, tmp_path):
    """Another client has submitted a job with an older version of this tool, and the job still runs."""
    root = Path(__file__).parents[2]
    older = tmp_path / "older"
    shutil.copytree(root / "kernel_assistant", older / "kernel_assistant")
    for path in older.rglob("*.py"):
        os.utime(path, (DAY, DAY))
    folder = sshd.settings.state_dir.parent
    environment = {**os.environ, "KERNEL_ASSISTANT_HOME": str(folder), "PYTHONPATH": str(older)}
    host = subprocess.Popen([sys.executable, str(root / "tests/session/tiny_host.py")], env=environment)
    try:
        module.write_text(f"# wait\n{module.read_text()}")
        submit = [sys.executable, "-m", "kernel_assistant", "optimize", str(module), "--detach", "--json"]
        while not (sshd.settings.state_dir / "host.json").exists():
            assert host.poll() is None
            time.sleep(0.01)
        first = subprocess.run(submit, env=environment, capture_output=True, text=True, check=False)
        assert json.loads(first.stdout)["job"]
        done = run("optimize", module, "--host", "box")
        assert done.returncode == 4, done.stderr
        assert "error: box: a session host of older code" in done.stderr
        assert "kernel-assistant host stop --host box" in done.stderr
        assert run("host", "stop", "--host", "box").stdout == "stopped\n"
    finally:
        host.kill()
        host.wait()
