"""The session host with real processes and its real socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import HostError, MissingError, UsageError
from kernel_assistant.events import JobFailed, JobFinished, JobQueued, JobStarted, Progress, Warned
from kernel_assistant.records import JobOutcome
from kernel_assistant.session.client import Client
from kernel_assistant.session.start import find_host
from kernel_assistant.session.wire import PROTOCOL, SocketConnection, hello
from kernel_assistant.store import JobOptions, JobState, Store
from tests.common.tasks import task_of


def make_task(content, target="cpu"):
    return task_of("/nowhere/model.py", content, target=target)


def submit(settings, content, target="cpu"):
    return Client(settings).submit(make_task(content, target), JobOptions())


def run_client(code):
    """Another process that runs `code` with a client."""
    imports = "from kernel_assistant.config import resolve; from kernel_assistant.session.client import Client"
    program = f"{imports}\nclient = Client(resolve()[0])\n{code}"
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def wait_for(stream, kind):
    """The first event of `kind`; if the stream ends without one, the test fails."""
    for event in stream:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


def begin(settings, content):
    """A job that has begun to work: its number, and what follows of its events."""
    job = submit(settings, content)["job"]
    stream = Client(settings).attach(job)
    wait_for(stream, Progress)
    return job, stream


def interrupted(settings, start_tiny, content):
    """The number of a job that has begun to work and whose host was killed."""
    host = start_tiny()
    job, _ = begin(settings, content)
    host.kill()
    host.wait()
    return job


def test_ten_clients_at_once_start_one_host(settings):
    clients = [run_client("client.ping(); print(client.status()['pid'])") for _ in range(10)]
    pids = {client.communicate()[0].strip() for client in clients}
    assert len(pids) == 1 and pids.pop().isdigit()
    assert all(client.returncode == 0 for client in clients)


def test_the_host_is_small_detached_and_without_torch(settings):
    client = Client(settings)
    client.ping()
    process = psutil.Process(client.status()["pid"])
    assert os.getsid(process.pid) == process.pid
    assert process.memory_info().rss < 120 << 20
    assert not any("torch" in mapped.path for mapped in process.memory_maps())


def test_events_are_replayed_and_followed_by_a_second_watcher(settings, start_tiny):
    start_tiny()
    job = submit(settings, "tick 20")["job"]
    first = list(Client(settings).attach(job))
    again = list(Client(settings).attach(job))
    assert first == again
    assert [event.seq for event in first] == list(range(1, len(first) + 1))
    assert isinstance(first[0], JobQueued) and isinstance(first[1], JobStarted)
    assert isinstance(first[-1], JobFinished) and first[-1].result.evaluations == 20
    assert list(Client(settings).attach(job, from_seq=5)) == first[4:]


def test_jobs_of_one_device_run_one_after_another_and_devices_side_by_side(settings, start_tiny):
    start_tiny()
    blocker = submit(settings, "wait")["job"]
    second = submit(settings, "tick 1")
    assert second["ahead"] == 1
    other = submit(settings, "tick 1", target="cuda")["job"]
    assert wait_for(Client(settings).attach(other), JobFinished)
    states = {row.id: row.state for row in Client(settings).jobs()}
    assert states == {blocker: JobState.running, second["job"]: JobState.queued, other: JobState.done}
    Client(settings).cancel(blocker)
    ends = [wait_for(Client(settings).attach(job), JobFinished) for job in (blocker, second["job"])]
    assert [end.result.outcome for end in ends] == [JobOutcome.cancelled, JobOutcome.no_candidate]


def test_a_queued_job_can_be_cancelled_without_running(settings, start_tiny):
    start_tiny()
    blocker = submit(settings, "wait")["job"]
    queued = submit(settings, "tick 1")["job"]
    assert Client(settings).cancel(queued) is JobState.cancelled
    events = list(Client(settings).attach(queued))
    assert [type(event) for event in events] == [JobQueued, JobFinished]
    Client(settings).cancel(blocker)


def test_the_same_submission_joins_the_running_job(settings, start_tiny):
    start_tiny()
    first = submit(settings, "wait")
    second = submit(settings, "wait")
    assert second["job"] == first["job"] and second["joined"]
    other_budget = Client(settings).submit(make_task("wait"), JobOptions(budget=5.0))
    assert not other_budget["joined"]


def test_a_killed_client_loses_nothing(settings, start_tiny):
    start_tiny()
    job = submit(settings, "tick 30")["job"]
    watcher = run_client(f"for event in client.attach({job!r}): print(event.seq, flush=True)")
    assert watcher.stdout.readline() == "1\n"
    watcher.kill()
    watcher.communicate()
    events = list(Client(settings).attach(job))
    assert events[-1].result.evaluations == 30


def test_a_killed_host_leaves_an_interrupted_job_that_goes_on_without_measuring_again(settings, start_tiny):
    host = start_tiny()
    job = submit(settings, "tick 40")["job"]
    stream = Client(settings).attach(job)
    for event in stream:
        if isinstance(event, Progress) and event.message == "turn 10":
            break
    host.send_signal(signal.SIGKILL)
    with pytest.raises(HostError, match="went away"):
        list(stream)
    host.wait()
    start_tiny()
    done = len(Store(settings.state_dir).steps(job))
    assert done >= 10
    assert {row.id: row.state for row in Client(settings).jobs()} == {job: JobState.interrupted}
    events = list(Client(settings).attach(job))
    resumed = next(event for event in events if isinstance(event, JobStarted) and event.resumed)
    turns = [event.message for event in events if event.seq > resumed.seq and isinstance(event, Progress)]
    assert turns[1] == f"turn {done}"
    assert events[-1].result.evaluations == 40
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_submitting_an_interrupted_task_continues_its_job(settings, start_tiny):
    job = interrupted(settings, start_tiny, "tick 40")
    start_tiny()
    again = submit(settings, "tick 40")
    assert again["job"] == job and again["resumed"]
    assert wait_for(Client(settings).attach(job), JobFinished).result.evaluations == 40


def test_an_interrupted_job_can_be_cancelled(settings, start_tiny):
    job = interrupted(settings, start_tiny, "wait")
    start_tiny()
    assert Client(settings).cancel(job) is JobState.cancelled
    assert wait_for(Client(settings).attach(job), JobFinished).result.outcome is JobOutcome.cancelled


def test_a_torn_line_of_a_crash_is_cut_off(settings, start_tiny):
    job = interrupted(settings, start_tiny, "wait")
    log = settings.jobs_dir / job / "events.jsonl"
    with log.open("ab") as file:
        file.write(b'{"type":"progress","se')
    start_tiny()
    stream = Client(settings).attach(job)
    wait_for(stream, Progress)
    Client(settings).cancel(job)
    assert isinstance(list(stream)[-1], JobFinished)
    assert all(json.loads(line) for line in log.read_text().splitlines())


def test_sigterm_cancels_jobs_and_tells_their_watchers(settings, start_tiny):
    host = start_tiny()
    job, stream = begin(settings, "wait")
    host.send_signal(signal.SIGTERM)
    assert wait_for(stream, JobFinished).result.outcome is JobOutcome.cancelled
    assert host.wait() == 0
    assert find_host(settings) is None
    assert Store(settings.state_dir).job(job).state is JobState.cancelled


def test_failures_and_bugs_end_the_job_not_the_lane(settings, start_tiny):
    start_tiny()
    failed = wait_for(Client(settings).attach(submit(settings, "fail")["job"]), JobFailed)
    assert (failed.cause, failed.next_step, failed.exit_code) == ("no compiler", "install one", MissingError.exit_code)
    broken = wait_for(Client(settings).attach(submit(settings, "bug")["job"]), JobFailed)
    assert broken.exit_code == 4 and "ZeroDivisionError: by design" in broken.cause and "tiny_host" in broken.detail
    assert wait_for(Client(settings).attach(submit(settings, "tick 1")["job"]), JobFinished)


def test_a_full_disk_fails_the_job_with_one_line(settings, start_tiny):
    start_tiny()
    status = Client(settings).status()
    psutil.Process(status["pid"]).rlimit(psutil.RLIMIT_FSIZE, (300_000, 300_000))
    job = submit(settings, "fill 400000")["job"]
    failed = wait_for(Client(settings).attach(job), JobFailed)
    assert failed.exit_code == 4 and "event log" in failed.cause
    assert Client(settings).status()["pid"] == status["pid"]


def test_no_job_stays_running_where_its_end_does_not_fit_on_the_disk(settings, start_tiny):
    start_tiny()
    job, stream = begin(settings, "wait")
    host = psutil.Process(Client(settings).status()["pid"])
    usual = host.rlimit(psutil.RLIMIT_FSIZE)
    host.rlimit(psutil.RLIMIT_FSIZE, (1, usual[1]))
    Client(settings).cancel(job)
    assert wait_for(stream, JobFinished).result.outcome is JobOutcome.cancelled
    (row,) = Client(settings).jobs()
    assert (row.id, row.state) == (job, JobState.cancelled)
    store = Store(settings.state_dir)
    assert store.job(job).state is JobState.running
    host.rlimit(psutil.RLIMIT_FSIZE, usual)
    while store.job(job).state is not JobState.cancelled:
        time.sleep(0.05)
    assert wait_for(Client(settings).attach(job), JobFinished).result.outcome is JobOutcome.cancelled


def test_a_damaged_history_is_told_by_the_next_job_once(settings, start_tiny):
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    (settings.state_dir / "store.sqlite").write_bytes(b"not a database at all" * 100)
    start_tiny()
    told = wait_for(Client(settings).attach(submit(settings, "tick 1")["job"]), Warned)
    assert "the history was damaged and is kept as" in told.message
    second = list(Client(settings).attach(submit(settings, "tick 2")["job"]))
    assert not any(isinstance(event, Warned) for event in second)


def test_an_idle_host_ends_itself_and_the_next_call_starts_another(settings, start_tiny):
    host = start_tiny(KERNEL_ASSISTANT_HOST_IDLE_SECONDS="0.3")
    assert host.wait(timeout=60) == 0
    assert Client(settings).status() is None
    Client(settings).ping()
    assert Client(settings).status()["pid"] != host.pid


def test_a_host_whose_state_folder_was_removed_leaves_the_next_one_alone(settings, start_tiny):
    first = start_tiny(KERNEL_ASSISTANT_HOST_IDLE_SECONDS="5")
    shutil.rmtree(settings.state_dir)
    second = start_tiny()
    assert first.wait(timeout=60) == 0
    assert second.poll() is None and Client(settings).status()["pid"] == second.pid


def test_a_running_job_keeps_the_host_alive(settings, start_tiny):
    host = start_tiny(KERNEL_ASSISTANT_HOST_IDLE_SECONDS="0.3")
    job = submit(settings, "tick 60")["job"]
    assert wait_for(Client(settings).attach(job), JobFinished).result.evaluations == 60
    assert host.wait(timeout=60) == 0


def converse(settings, greeting):
    connection = SocketConnection(find_host(settings))
    connection.send(greeting)
    return connection, connection.receive(10)


def test_another_protocol_gets_a_clear_message(settings, start_tiny):
    start_tiny()
    _, answer = converse(settings, {**hello(), "hello": PROTOCOL + 1})
    assert f"speaks protocol {PROTOCOL}, not {PROTOCOL + 1}" in answer["error"]["cause"]
    assert "host stop" in answer["error"]["next_step"]


def test_a_newer_client_makes_an_idle_host_go(settings, start_tiny):
    host = start_tiny()
    _, answer = converse(settings, {**hello(), "version": "999.0"})
    assert answer["busy"] == 0
    assert host.wait(timeout=60) == 0


def test_a_busy_host_finishes_its_jobs_before_it_makes_room(settings, start_tiny):
    host = start_tiny()
    job = submit(settings, "wait")["job"]
    connection, answer = converse(settings, {**hello(), "version": "999.0"})
    assert answer["busy"] == 1
    with pytest.raises(HostError, match="busy with 1 job"):
        submit(settings, "tick 1")
    connection.close()
    Client(settings).cancel(job)
    assert host.wait(timeout=60) == 0


def test_nonsense_does_not_hurt_the_host(settings, start_tiny):
    start_tiny()
    stream = find_host(settings)
    stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
    stream.shutdown(socket.SHUT_WR)
    stream.close()
    connection, _ = converse(settings, hello())
    connection.send({"id": 1, "method": "submit", "params": {"task": {"path": 3}, "options": {}}})
    assert connection.receive(10)["error"]["kind"] == "UsageError"
    connection.send({"id": 2, "method": "submit", "params": {"wrong": 1}})
    assert connection.receive(10)["error"]["kind"] == "InternalError"
    with pytest.raises(UsageError, match="no job"):
        Client(settings).attach("77")


def test_a_state_folder_with_a_long_path_still_has_a_socket(tmp_path, monkeypatch, settings):
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / ("long" * 40)))
    client = Client(resolve()[0])
    client.ping()
    assert client.shutdown()


def test_the_socket_folder_is_closed_to_others(settings):
    Client(settings).ping()
    assert settings.runtime_dir.stat().st_mode & 0o777 == 0o700
    assert settings.state_dir.stat().st_mode & 0o777 == 0o700
