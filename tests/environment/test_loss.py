"""Tests losses in the middle of work: of the worker, of the compiler, of disk space, and a cancel by the user."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from kernel_assistant.environment import session
from kernel_assistant.environment.builds.compile import Binary
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import Cancelled, DeviceError, MissingError, StoreError
from kernel_assistant.events import Warned
from kernel_assistant.records import Outcome, Tier
from tests.judge.kernels import MODULE, candidate, environment, new_worker, task

pytestmark = [pytest.mark.lost, pytest.mark.usefixtures("own_templates")]

ENDLESS = ("/*ENTRY*/", "for (volatile int go = 1; go;) {}")
ENDLESS_LATER = ("/*GLOBAL*/", "static int calls;"), ("/*ENTRY*/", "for (volatile int go = ++calls > 3; go;) {}")
#: 10⁷ statements: many seconds for any compiler.
SLOW_TO_COMPILE = (
    ("/*GLOBAL*/", "\n".join(f"#define M{i} {' '.join([f'M{i - 1}' if i else 'n++;'] * 10)}" for i in range(7))),
    ("/*ENTRY*/", "volatile int n = 0; M6"),
)


def spinning(processes: list[psutil.Process]) -> list[psutil.Process]:
    """The runners that are busy with a kernel."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if "runner/boot.py" in " ".join(process.cmdline()) and sum(process.cpu_times()[:2]) > 0.5:
                found.append(process)
    return found


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def evaluating(environment, *candidates):
    """Starts the evaluation in a thread; returns a future of the evaluations."""
    thread = ThreadPoolExecutor(1)
    future = thread.submit(environment.evaluate, candidates, Tier.quick)
    thread.shutdown(wait=False)
    return future


@pytest.mark.slow
def test_a_worker_that_is_killed_is_named_and_the_job_goes_on(worker, cache, children, wait_for):
    events: list[object] = []
    with environment(worker, cache, events=events) as opened:
        before = worker.process.pid
        coming = evaluating(opened, candidate(ENDLESS), candidate())
        wait_for(lambda: spinning(children()))
        runners = spinning(children())
        os.kill(before, signal.SIGKILL)
        lost, fine = coming.result()
        assert (lost.outcome, fine.outcome) == (Outcome.crashed, Outcome.correct)
        assert "SIGKILL" in lost.message
        assert worker.process.pid != before and worker.alive
        assert any(isinstance(event, Warned) and "SIGKILL" in event.message for event in events)
        wait_for(lambda: all(map(gone, runners)))


def test_a_worker_that_dies_again_and_again_ends_the_job(worker, cache, children, wait_for, monkeypatch):
    monkeypatch.setattr(session, "MOST_RESTARTS", 0)
    with environment(worker, cache) as opened:
        coming = evaluating(opened, candidate(ENDLESS))
        wait_for(lambda: spinning(children()))
        os.kill(worker.process.pid, signal.SIGKILL)
        with pytest.raises(DeviceError, match="lost 1 times"):
            coming.result()
    assert not worker.alive
    worker.restart()


def test_a_restarted_worker_keeps_its_log_and_environment(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "mark $MARK" >&2\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    started = WorkerClient(str(python), log=tmp_path / "log", env={"MARK": "kept"})
    first = started.start()
    started.restart()
    assert started.hello["pid"] != first["pid"]
    started.close()
    assert (tmp_path / "log").read_text(encoding="utf-8").count("mark kept") == 2


@pytest.mark.parametrize(
    ("edits", "busy"),
    [
        (SLOW_TO_COMPILE, lambda found: [process for process in found if process.name() == "cc1plus"]),
        ((ENDLESS,), spinning),
        (ENDLESS_LATER, spinning),
    ],
    ids=["compile", "verify", "profile"],
)
def test_cancel_stops_everything(cache, children, wait_for, edits, busy):
    cancel = threading.Event()
    ours = new_worker(cache / "worker.log")
    before = set(children()) - {psutil.Process(ours.process.pid)}
    with environment(ours, cache, cancel=cancel) as opened:
        coming = evaluating(opened, candidate(*edits))
        wait_for(lambda: busy(set(children()) - before))
        started = set(children()) - before
        cancel.set()
        # Without a cancel this would be "hung" after ten seconds.
        with pytest.raises(Cancelled):
            coming.result()
    ours.close()
    wait_for(lambda: all(map(gone, started)))
    assert not ours.alive


def test_a_missing_compiler_is_said_when_the_job_begins(worker, cache, tmp_path, monkeypatch):
    for name in ("bwrap", "unshare"):
        if found := shutil.which(name):
            (tmp_path / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingError, match=r"no C\+\+ compiler") as caught, environment(worker, cache):
        pass
    assert "apt-get install" in caught.value.next_step


def test_a_full_disk_is_named(compiler, tmp_path):
    """Files of this process may not exceed 32 KiB. The compiler sets limits of its own and can write more."""
    large = candidate(("/*GLOBAL*/", "extern const char table[1 << 17] = {1};"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 10, hard))
    try:
        with pytest.raises(StoreError, match="could not be kept") as caught:
            compiler.build(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(tmp_path) in caught.value.next_step
    assert isinstance(compiler.build(large), Binary)


@pytest.mark.slow
def test_a_module_that_cannot_be_copied_is_still_judged_in_full(worker, cache):
    text = MODULE.replace("self.scale = ", "import threading; self.lock = threading.Lock()\n        self.scale = ")
    with environment(worker, cache, task(text)) as opened:
        honest = opened.evaluate([candidate()], Tier.full)[0]
        baked = opened.evaluate([candidate(("a->w[i]", "(0.5f + i / 255.0f)"))], Tier.full)[0]
    assert honest.correct, honest.message
    assert baked.outcome is Outcome.incorrect
    assert "reweighted" in baked.message


def test_builds_are_cached_by_content(compiler, tmp_path):
    first, again = compiler.build(candidate()), compiler.build(candidate())
    other = compiler.build(candidate(("1e-6f", "2e-6f")))
    assert (first.cached, again.cached, other.cached) == (False, True, False)
    assert first.content == again.content != other.content
    for report in tmp_path.rglob("report.json"):
        report.write_text("{", encoding="utf-8")
    assert not compiler.build(candidate()).cached
