"""A forked worker behaves like a worker that imported torch itself."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from kernel_assistant.environment.ceilings import ceilings_of
from kernel_assistant.environment.measuring import GPU_SHARE
from kernel_assistant.environment.template_key import VARIABLE
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import UsageError
from kernel_assistant.records import to_builtins
from kernel_assistant.targets.detect import detect
from kernel_assistant.worker.template import COUNT_DEVICES, devices_counted_elsewhere
from tests.common.tasks import task_of

pytestmark = pytest.mark.programs

#: The environment of a worker that is a program of its own.
OFF = {VARIABLE: "off"}

#: A user's module. What it finds goes into a file; then it fails, so that nothing else is done with it.
MODULE = """
import json, os, sys
found = {{}}
{code}
with open({out!r}, "w") as file:
    json.dump(found, file)
raise RuntimeError("that is all")
"""
EVERYTHING = """
found["environment"] = dict(os.environ)
import gc, multiprocessing, random, resource, signal, tempfile, torch, torch._dynamo.config, torch._inductor.config
tasks = sorted(int(task) for task in os.listdir("/proc/self/task"))
found.update(
    folder=os.getcwd(),
    remembered=[multiprocessing.process.ORIGINAL_DIR, torch._dynamo.config.debug_dir_root, tempfile.gettempdir()],
    settings={name: one.default for name, one in torch._inductor.config._config.items() if type(one.default) is str},
    program=[sys.argv, sys.path, sys.modules["__main__"].__file__],
    files=sorted(os.readlink(f"/proc/self/fd/{name}").split(":")[0] for name in range(6)),
    more=[name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}") and int(name) > 5],
    signals=[str(signal.getsignal(number)) for number in signal.valid_signals()],
    ignored=[line for line in open("/proc/self/status") if line.startswith(("SigIgn", "SigBlk", "SigCgt", "Umask"))],
    collecting=[gc.get_threshold(), gc.isenabled()],
    leads=[os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    limits=[resource.getrlimit(number) for number in range(16)],
    threads=[torch.get_num_threads(), torch.get_num_interop_threads()],
    pool=[sorted(os.sched_getaffinity(task)) for task in tasks],
    cuda=torch.cuda.is_initialized(),
    type=str(torch.get_default_dtype()),
)
"""
NUMBERS = """
import random, torch, numpy
found = [random.random(), torch.rand(()).item(), torch.initial_seed(), numpy.random.random()]
"""


def seen(worker: WorkerClient, folder: Path, code: str, name: str = "looks_around") -> Any:
    """The environment of a user's module inside the worker."""
    out = folder / "found.json"
    task = task_of(folder / f"{name}.py", MODULE.format(code=code, out=str(out)), module_name=name)
    device = detect("cpu")
    params = {"task": to_builtins(task), "device": 0, "seconds": 0.1, "ceilings": ceilings_of(device)}
    with pytest.raises(UsageError, match="that is all"):
        worker.call("profile_lines", params, timeout=60.0)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@contextmanager
def started(template_seconds: float = math.inf, **env: str) -> Iterator[WorkerClient]:
    """A worker that has answered, and that ends with the block."""
    worker = WorkerClient(sys.executable, env=env, template_seconds=template_seconds)
    try:
        worker.start()
        yield worker
    finally:
        worker.kill()


@pytest.fixture
def forked() -> Iterator[WorkerClient]:
    with started() as worker:
        yield worker


@pytest.fixture
def executed() -> Iterator[WorkerClient]:
    with started(**OFF) as worker:
        yield worker


def template_of(worker: WorkerClient) -> psutil.Process:
    found = psutil.Process(worker.process.pid).parent()
    assert found is not None and "boot_template.py" in " ".join(found.cmdline())
    return found


def test_what_a_module_finds_is_what_it_finds_in_a_worker_with_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {GPU_SHARE: "0.25", "XDG_DATA_HOME": str(tmp_path)}
    with started(**env) as ours, started(**env, **OFF) as theirs:
        hellos = [{**worker.hello, "pid": 0} for worker in (ours, theirs)]
        assert hellos[0] == hellos[1]
        assert ours.hello["pid"] == ours.process.pid and template_of(ours).ppid() == os.getpid()
        here, there = seen(ours, tmp_path, EVERYTHING), seen(theirs, tmp_path, EVERYTHING)
    assert there["environment"].pop(VARIABLE) == "off"
    assert here == there
    assert here["environment"][GPU_SHARE] == "0.25" and here["folder"] == str(tmp_path)


def test_the_pool_is_its_own_and_bound_as_in_a_process_of_its_own(forked: WorkerClient, executed: WorkerClient) -> None:
    def pool(worker: WorkerClient) -> list[list[int]]:
        tasks = sorted(int(path.name) for path in Path(f"/proc/{worker.process.pid}/task").iterdir())
        assert tasks[0] == worker.process.pid
        return [sorted(os.sched_getaffinity(task)) for task in tasks]

    assert pool(forked) == pool(executed)
    assert len(pool(forked)) == forked.hello["threads"]


def test_two_draw_different_numbers(forked: WorkerClient, tmp_path: Path) -> None:
    with started() as other:
        assert template_of(forked) == template_of(other)
        one, two = seen(forked, tmp_path, NUMBERS), seen(other, tmp_path, NUMBERS)
    assert all(left != right for left, right in zip(one, two, strict=True))


def test_a_template_has_one_thread_no_device_and_no_module_of_a_user(forked: WorkerClient, tmp_path: Path) -> None:
    seen(forked, tmp_path, "", "module_of_a_user")
    template = template_of(forked)
    assert template.num_threads() == 1
    links = [os.readlink(path) for path in Path(f"/proc/{template.pid}/fd").iterdir()]
    assert not [link for link in links if link.startswith("/dev/") and link != "/dev/null"]
    with started() as worker:
        assert template_of(worker) == template
        found = seen(worker, tmp_path, "found = [sorted(sys.modules), sys.modules['torch'].cuda.is_initialized()]")
    assert "module_of_a_user" not in found[0] and "torch._dynamo" in found[0] and not found[1]


def test_devices_are_counted_in_a_child_while_modules_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acts like a driver: a process that asks it has a file open afterwards."""
    opened: list[int] = []

    def count() -> int:
        opened.append(os.open("/dev/zero", os.O_RDONLY))
        return 3

    monkeypatch.setattr(torch._C, COUNT_DEVICES, count, raising=False)
    with devices_counted_elsewhere():
        assert [torch._C._cuda_getDeviceCount() for _ in range(2)] == [3, 3]
    assert not opened
    assert torch._C._cuda_getDeviceCount is count


def test_it_looks_like_a_worker_to_who_lists_processes(forked: WorkerClient, executed: WorkerClient) -> None:
    lines = [" ".join(psutil.Process(worker.process.pid).cmdline()).strip() for worker in (forked, executed)]
    assert lines[0] == lines[1] and lines[0].endswith("worker/boot.py")


def test_what_an_interpreter_sets_when_it_starts_is_set(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['SET'] = os.environ.pop('GIVEN') + ' again'\n")
    with started(0.0, PYTHONPATH=str(tmp_path), GIVEN="once") as worker:
        template_of(worker)
        found = seen(worker, tmp_path, "found = dict(os.environ)")
    assert found["SET"] == "once again" and "GIVEN" not in found
