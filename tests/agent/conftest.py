"""One worker and one open environment for all episodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kernel_assistant.agent.loop import Episode
from kernel_assistant.config import resolve
from kernel_assistant.environment.session import Environment
from kernel_assistant.session.hosting.jobs import JobServices
from kernel_assistant.session.kinds import job_policies
from kernel_assistant.store import JobOptions, Store
from tests.judge import kernels


@pytest.fixture(scope="module")
def cancel() -> threading.Event:
    """The event that cancels the environment of these tests."""
    return threading.Event()


@pytest.fixture(scope="module")
def nominal() -> bool:
    """Whether times are the same on any machine; False where a test's subject is which candidate is faster."""
    return True


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory, cancel: threading.Event, nominal: bool) -> Iterator[Environment]:
    cache = tmp_path_factory.mktemp("cache")
    worker = kernels.new_worker(cache / "worker.log")
    with kernels.environment(worker, cache, cancel=cancel, nominal=nominal) as opened:
        yield opened
    worker.close()


@pytest.fixture
def job(norm, cancel, tmp_path, monkeypatch):
    """A function: what the user said, and options → the trajectory of a job's episode on the open environment."""
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path))
    store, events = Store(tmp_path), []
    known = {"job": "1", "device": "cpu:0", "folder": tmp_path / "job", "workers": None, "resume_steps": ()}

    def play(said=(), seconds=600, **options):
        cancel.clear()
        services = JobServices(**known, settings=resolve(tmp_path)[0], store=store, said=said)
        chosen = job_policies.JobPolicies(norm.task, JobOptions(**options), norm, services, events.append, cancel)
        try:
            trajectory = Episode(chosen.judging, chosen.phases(seconds), events.append, cancel).run()
            chosen.keep(trajectory)
        finally:
            chosen.close()
        play.spent = chosen.spent
        return trajectory

    play.store, play.events = store, events
    yield play
    store.close()
    cancel.clear()
