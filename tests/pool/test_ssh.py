"""A pool whose only machine is behind a real ssh, with an sshd of this test's own."""

from __future__ import annotations

import contextlib
import os
import sys

import psutil
import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import MissingError
from kernel_assistant.remote.ssh import Ssh
from kernel_assistant.targets.cpu import facts
from kernel_assistant_training.ppo.pool import Pool, PoolOptions
from kernel_assistant_training.ppo.pool_kind import device_kind
from kernel_assistant_training.ppo.pool_ssh import MODULE
from tests.common.caches import new_cache
from tests.common.sshd import lacking, ssh_folder, sshd

__all__ = ["ssh_folder", "sshd"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]


@pytest.fixture
def there(sshd, ssh_folder, home, tmp_path, python_path, monkeypatch):
    """The machine `box`, where this package is installed."""
    monkeypatch.setenv("PATH", f"{ssh_folder[0] / 'bin'}:{os.environ['PATH']}")
    new_cache(tmp_path / "there" / "cache")
    sshd.start(PYTHONPATH=python_path, KERNEL_ASSISTANT_HOME=str(tmp_path / "there"))
    yield sshd
    Ssh("box", resolve()[0].runtime_dir).disconnect()


def far(home):
    """Processes of our program over there, of this test alone."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            ours = (one.info["cmdline"] or [])[1:] == ["-m", MODULE]
            if ours and one.environ().get("KERNEL_ASSISTANT_HOME") == str(home):
                found.append(one)
    return found


def test_far_machine_judges_once_is_lost_and_comes_back(there, asked, tmp_path):
    lines = []
    options = PoolOptions(
        target="cpu",
        out=tmp_path / "run",
        cache=tmp_path / "cache",
        python=sys.executable,
        pool=("ssh://box?workers=1",),
        tell=lines.append,
    )
    (right, broken), (other, _), _ = asked
    with Pool(options) as pool:
        assert pool.workers == [], "nothing runs here"
        opened = pool.open([right.task])
        assert opened[right.task.key].baseline.eager_ms > 0
        assert opened[right.task.key].device.copy_bandwidth > 0, "of over there"
        first = pool.judge([right, broken, right])
        assert [one.outcome.value for one in first] == ["correct", "compile_error", "correct"]
        (process,) = far(tmp_path / "there")
        process.kill()
        # It was at nothing: nothing is void, and the task goes to it once it is back.
        assert pool.judge([other])[0].outcome.value == "correct"
        assert (pool.judged, pool.repeated, pool.void) == (3, 1, 0)
        again = far(tmp_path / "there")
    assert psutil.wait_procs(again, timeout=30)[1] == [], "closing ends it"
    assert lines[0].startswith("box is lost: ") and "void: 0 evaluations" in lines[0]
    assert lines[1] == "box: judges again"
    # Another start, on the same kind of device but another machine: all is known.
    with Pool(PoolOptions("cpu", tmp_path / "run", new_cache(tmp_path / "cache"), sys.executable)) as pool:
        assert pool.judge([right, broken]) == first[:2]
        assert pool.judge([other])[0].outcome.value == "correct"
        assert (pool.judged, pool.repeated) == (0, 3)
    assert device_kind(facts()) in (tmp_path / "run" / "evaluations.jsonl").read_text()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("ssh://closed", "closed: nothing answers ssh there"),
        ("ssh://box?python=/nowhere/python3", "box: /nowhere/python3 is not there"),
    ],
)
def test_machines_that_cannot_be_reached_or_lack_the_package(there, tmp_path, place, said):
    options = PoolOptions("cpu", tmp_path / "run", tmp_path / "cache", sys.executable, pool=(place,))
    with pytest.raises(MissingError, match=said):
        Pool(options)
