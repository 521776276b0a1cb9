"""Warm workers: one for each device; tests how they are lent, kept and ended."""

from __future__ import annotations

import sys
import time

import psutil
import pytest

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.session.hosting.workers import WorkerPool
from kernel_assistant.targets.detect import detect
from tests.common.tasks import task_of
from tests.judge.kernels import environment


@pytest.fixture(scope="module")
def device():
    return detect("cpu")


@pytest.fixture
def pool(tmp_path):
    opened = WorkerPool(60.0, tmp_path / "worker.log")
    yield opened
    opened.close()


def test_a_worker_is_kept_warm_and_ends_with_the_pool(pool, device):
    with pool.lend(sys.executable, device) as worker:
        pid = worker.start()["pid"]
    with pool.lend(sys.executable, device) as again:
        assert again is worker and again.alive
    pool.close()
    assert not psutil.pid_exists(pid)


def test_the_kernels_of_a_folder_are_loaded_once_in_a_process(pool, device):
    with pool.lend(sys.executable, device) as judge, pool.lend_plain(sys.executable, device, "a") as first:
        assert first is not judge
    with pool.lend_plain(sys.executable, device, "b") as again:
        assert again is first
    with pool.lend_plain(sys.executable, device, "a") as fresh:
        assert fresh is not first and fresh.alive and not first.alive
    with pool.lend(sys.executable, device) as kept:
        assert kept is judge


def test_after_an_upgrade_of_a_package_a_worker_is_not_lent_again(pool, device, tmp_path):
    python = tmp_path / "bin" / "python"
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    with pool.lend(str(python), device) as worker:
        pass
    with pool.lend(str(python), device) as again:
        assert again is worker
    (packages / "library-2.0.dist-info").mkdir()
    with pool.lend(str(python), device) as fresh:
        assert fresh is not worker and not worker.alive


def test_a_dead_worker_is_not_lent_again(pool, device):
    with pool.lend(sys.executable, device) as worker:
        worker.kill()
    with pool.lend(sys.executable, device) as fresh:
        assert fresh is not worker and fresh.alive


def test_a_worker_in_which_an_import_failed_is_not_lent_again(pool, device, tmp_path):
    """The changes that the file had made, for example to the registry of a library, would make the next import fail
    too.
    """
    path = tmp_path / "half.py"
    path.write_text("import torch\n\n\nclass Half(torch.nn.Module):\n    pass\n\n\nraise ValueError('no')\n")
    task = task_of(path, path.read_text(), "Half")
    with (
        pool.lend(sys.executable, device) as worker,
        pytest.raises(UsageError, match=r"importing half\.py failed"),
        environment(worker, tmp_path, task),
    ):
        pytest.fail("it was opened")
    with pool.lend(sys.executable, device) as fresh:
        assert fresh is not worker and not worker.alive


def test_an_idle_worker_ends_by_itself(device, tmp_path):
    pool = WorkerPool(0.2, tmp_path / "worker.log")
    with pool.lend(sys.executable, device) as worker:
        worker.start()
    while worker.alive:
        time.sleep(0.05)
    pool.close()


def test_an_interpreter_that_is_not_there_is_missing(pool, device):
    with pytest.raises(MissingError, match="could not be started"), pool.lend("/nonexistent/python", device):
        pass
