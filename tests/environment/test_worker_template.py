"""Tests workers and their template: who starts it, who shares it, and the effects when one of them dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from kernel_assistant.environment import worker_template
from kernel_assistant.environment.template_key import VARIABLE
from kernel_assistant.environment.worker_client import WorkerClient, WorkerTimeout
from kernel_assistant.errors import MissingError, WorkerError
from kernel_assistant.session.hosting.workers import WorkerPool
from kernel_assistant.targets.detect import detect

pytestmark = pytest.mark.lost

#: Starts a worker, says its number and its template's, and keeps it until it is told to end.
CLIENT = """
import json, sys
from kernel_assistant.environment.worker_client import WorkerClient
worker = WorkerClient(sys.executable)
pid = worker.start()["pid"]
parent = next(line for line in open(f"/proc/{pid}/status") if line.startswith("PPid:")).split()[1]
print(json.dumps([pid, int(parent)]), flush=True)
sys.stdin.readline()
worker.kill()
"""

Starts = Callable[..., WorkerClient]


@pytest.fixture(autouse=True)
def no_shared_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starts]:
    """Starts workers that end with the test."""
    begun: list[WorkerClient] = []

    def new(python: str = sys.executable, **env: str) -> WorkerClient:
        begun.append(WorkerClient(python, log=tmp_path / "log", env=env, template_seconds=5.0))
        begun[-1].start()
        return begun[-1]

    yield new
    for worker in begun:
        worker.kill()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for templates. A template that was started there ends after the test."""
    folder = tmp_path / "templates"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setattr(worker_template, "SHARED_SECONDS", 0.0)
    return folder


def is_template(process: psutil.Process) -> bool:
    return "boot_template.py" in " ".join(process.cmdline())


def template_of(worker: WorkerClient) -> psutil.Process:
    starter = psutil.Process(worker.process.pid).parent()
    assert starter is not None and is_template(starter)
    return starter


def is_own_program(worker: WorkerClient) -> bool:
    return psutil.Process(worker.process.pid).ppid() == os.getpid()


def answers(worker: WorkerClient) -> bool:
    return worker.call("hello", {}, timeout=60.0)["pid"] == worker.process.pid


def client() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(stream: IO[str] | None) -> list[int]:
    assert stream is not None
    return list(json.loads(stream.readline()))


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_workers_of_one_environment_have_one_template(start: Starts, tmp_path: Path) -> None:
    one, two = start(), start(XDG_CACHE_HOME=str(tmp_path), KERNEL_ASSISTANT_GPU_SHARE="0.5", TERM="dumb")
    assert template_of(one) == template_of(two) and template_of(one).ppid() == os.getpid()
    other = start(TORCH_LOGS="+export")
    assert template_of(other) != template_of(one)


def test_limits_of_the_starter_make_another_template(start: Starts) -> None:
    one, before = start(), os.umask(0o077)
    try:
        other = start()
    finally:
        os.umask(before)
    assert template_of(other) != template_of(one)
    status = Path(f"/proc/{other.process.pid}/status").read_text(encoding="utf-8")
    assert "Umask:\t0077" in status


def test_without_a_template_a_worker_is_a_program_of_its_own(start: Starts, tmp_path: Path) -> None:
    assert is_own_program(start(**{VARIABLE: "off"}))
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    assert is_own_program(start(str(script)))


def test_after_an_upgrade_of_a_package_the_next_worker_has_another_template(start: Starts, tmp_path: Path) -> None:
    home, venv = Path(sys.executable).parent.parent, tmp_path / "venv"
    python, packages = venv / "bin" / "python", venv / "lib" / "python3.11" / "site-packages"
    for folder in (python.parent, packages):
        folder.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    theirs = next(home.glob("lib/python3*/site-packages"))
    (packages / "theirs.pth").write_text(str(theirs), encoding="utf-8")
    shutil.copy(home / "pyvenv.cfg", venv)
    one = start(str(python))
    (packages / "library-2.0.dist-info").mkdir()
    assert template_of(start(str(python))) != template_of(one)


def test_without_torch_the_same_is_missing(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    causes = []
    for env in ({}, {VARIABLE: "off"}):
        worker = WorkerClient(str(bare / "bin" / "python"), env=env)
        with pytest.raises(MissingError, match="has no torch") as caught:
            worker.start()
        causes.append((caught.value.cause, caught.value.next_step))
        assert is_own_program(worker)
        worker.kill()
    assert causes[0] == causes[1]


def test_a_template_that_is_killed_takes_no_worker_with_it(start: Starts) -> None:
    worker = start()
    template = template_of(worker)
    template.kill()
    template.wait(60)
    assert worker.alive and answers(worker)
    fresh = start()
    assert template_of(fresh) != template and answers(fresh)
    os.kill(worker.process.pid, signal.SIGKILL)
    assert worker.process.wait(60) in (-signal.SIGKILL, worker_template.UNKNOWN_STATUS)
    with pytest.raises(WorkerError):
        answers(worker)


def test_a_worker_that_is_killed_keeps_its_number_until_its_status_is_taken(start: Starts) -> None:
    worker = start()
    process = psutil.Process(worker.process.pid)
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    os.killpg(worker.process.pid, signal.SIGKILL)
    assert worker.process.wait() == -signal.SIGKILL
    process.wait(60)
    assert not worker.alive


def test_the_status_of_one_that_ends_by_itself_is_told(start: Starts) -> None:
    worker = start()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(0.01)
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.process.wait(60) == worker.process.poll() == 0


def test_a_worker_dies_as_before(start: Starts) -> None:
    worker = start()
    os.kill(worker.process.pid, signal.SIGSEGV)
    with pytest.raises(WorkerError, match="died of SIGSEGV"):
        answers(worker)


def test_when_the_client_is_killed_worker_and_template_end(wait_for: Callable[[Callable[[], object]], None]) -> None:
    process = client()
    pids = told(process.stdout)
    assert is_template(psutil.Process(pids[1])) and psutil.Process(pids[1]).ppid() == process.pid
    process.kill()
    process.wait()
    wait_for(lambda: all(map(gone, pids)))


def test_one_that_is_not_wanted_any_more_is_not_started(tmp_path: Path) -> None:
    worker = WorkerClient(sys.executable, log=tmp_path / "log", env={"NUMBER": "one"}, template_seconds=0.0)
    assert worker.alive
    worker.kill()
    assert not worker.alive and worker.process.wait() == -signal.SIGKILL
    worker.restart()
    assert answers(worker)
    worker.kill()


def test_a_template_that_does_not_answer_is_not_waited_for(start: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    template = template_of(start(SILENT="yes"))
    monkeypatch.setattr(worker_template, "ANSWER_SECONDS", 0.5)
    template.suspend()
    try:
        worker = start(SILENT="yes")
        assert answers(worker) and is_own_program(worker)
        monkeypatch.setattr(worker_template, "ANSWER_SECONDS", 60.0)
        assert template_of(start(SILENT="yes")) != template
    finally:
        template.kill()


def test_who_stops_waiting_for_a_template_does_not_wait_for_it_after_all(start: Starts, tmp_path: Path) -> None:
    """The template holds the worker's pipes; a job waited for it 38 s behind its limit."""
    template = template_of(start(STOPPED="yes"))
    template.suspend()
    try:
        worker = WorkerClient(sys.executable, log=tmp_path / "log", env={"STOPPED": "yes"}, template_seconds=0.0)
        with pytest.raises(WorkerTimeout):
            worker.start(seconds=0.2)
        assert template.status() == psutil.STATUS_STOPPED and worker.process.wait() == -signal.SIGKILL
    finally:
        template.kill()


def test_many_at_once_come_from_one_template(tmp_path: Path) -> None:
    workers = [WorkerClient(sys.executable, env={"MANY": "yes"}, template_seconds=0.0) for _ in range(4)]
    try:
        threads = [threading.Thread(target=worker.start) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({template_of(worker) for worker in workers}) == 1
        assert len({worker.hello["pid"] for worker in workers}) == 4
    finally:
        for worker in workers:
            worker.kill()


def test_an_idle_template_ends_with_the_workers_of_a_session(tmp_path: Path) -> None:
    pool = WorkerPool(0.2, tmp_path / "log")
    with pool.lend(sys.executable, detect("cpu")) as worker:
        worker.start()
        template = template_of(worker)
    while not gone(template.pid):
        time.sleep(0.05)
    with pool.lend(sys.executable, detect("cpu")) as again:
        again.start()
        assert template_of(again) != template
    pool.close()


def test_two_processes_share_the_template_of_a_folder(shared: Path, start: Starts) -> None:
    both = [client(), client()]
    (one, first), (two, second) = [told(process.stdout) for process in both]
    assert one != two and first == second
    template = psutil.Process(first)
    assert is_template(template) and template.ppid() not in {process.pid for process in both}
    for process in both:
        process.communicate("\n")
        assert process.returncode == 0
    assert gone(one) and gone(two)
    worker = start()
    assert template_of(worker) == template
    template.kill()
    fresh = start()
    assert template_of(fresh) != template and is_template(template_of(fresh))
    assert sorted(path.name for path in shared.iterdir())[-1:] == ["lock"]
    template_of(fresh).kill()


@pytest.mark.parametrize("mode", [0o755, 0o770, None])
def test_a_folder_that_others_can_read_or_own_is_refused(shared: Path, start: Starts, mode: int | None) -> None:
    if mode is not None:
        shared.chmod(mode)
    elif os.getuid():
        pytest.skip("only root can give a folder away")
    else:
        os.chown(shared, 54321, -1)
    assert is_own_program(start())
    assert not list(shared.iterdir())


def test_a_folder_with_a_long_name_will_do(shared: Path, start: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    long = shared / ("x" * 120)
    long.mkdir(mode=0o700)
    monkeypatch.setenv(VARIABLE, str(long))
    template_of(start()).kill()
