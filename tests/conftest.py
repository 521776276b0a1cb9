"""Fixtures of all tests: a home of their own, and skips for missing resources."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pynvml
import pytest
from hypothesis import settings
from xdist.remote import Producer

from kernel_assistant.environment import device_locks, template_key
from tests.common.builds import forget_old
from tests.common.caches import new_cache
from tests.common.kinds import GATE, KINDS
from tests.common.left_out import LeftOut
from tests.common.order import in_good_order
from tests.common.sampling import mark_beyond_sample
from tests.common.scheduling import GroupScheduling
from tests.common.stuck import processes_end_with
from tests.common.templates import templates_folder

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_ROOTS = (ROOT, ROOT / "lsp", ROOT / "tui", ROOT / "training")

#: What every process that a test starts has from the run.
SHARED = (device_locks.FOLDER, template_key.VARIABLE)

# A run in the background (`nohup make test &`) inherits SIGINT as ignored, and would hand that on to every process
# whose answer to Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Objects of torch and of collected tests stay: looking through them again and again was a fifth of what tests do.
gc.set_threshold(100_000)
# The same examples in every run, and no limit on what a busy machine takes for one.
settings.register_profile("suite", derandomize=True, deadline=None, database=None)
settings.load_profile("suite")
# Before torch is loaded: threads that have nothing to do would keep a core from another test.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Excludes the collected tests from garbage collection, which otherwise took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    for kind in KINDS:
        config.addinivalue_line("markers", f"{kind.marker}: {kind.cause}; {kind.command}")
    config.addinivalue_line("markers", "sampled(every): of a test's cases all but each `every`th are `builds`")
    if GATE in config.option.markexpr:
        config.pluginmanager.register(LeftOut())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    with processes_end_with(item):
        return (yield)


def pytest_sessionfinish() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        forget_old()


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the number of skipped tests by reason, if they are not listed one by one."""
    if {"s", "a", "A"} & set(terminalreporter.config.option.reportchars):
        return
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    reasons = Counter(str(place[2]).removeprefix("Skipped: ") for place in skipped if isinstance(place, tuple))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count:4d}: {reason}")


def _has_gpu() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return bool(pynvml.nvmlDeviceGetCount())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs before pytest-xdist reads the group of each test."""
    mark_beyond_sample(items)
    if "PYTEST_XDIST_WORKER" in os.environ:
        in_good_order(items)
    for item in items:
        if item.get_closest_marker("vllm") and not os.environ.get("KERNEL_ASSISTANT_VLLM_PYTHON"):
            item.add_marker(pytest.mark.skip(reason="needs KERNEL_ASSISTANT_VLLM_PYTHON"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session", autouse=True)
def own_folders() -> Iterator[Path]:
    """Keeps jobs, caches and sockets of the tests away from the user's, in a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="ka-"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONFIG", "CACHE", "DATA", "STATE", "RUNTIME"):
            home = folder / name.lower()
            home.mkdir(mode=0o700)
            patch.setenv(f"XDG_{name}_HOME" if name != "RUNTIME" else "XDG_RUNTIME_DIR", str(home))
        if not _has_gpu():
            # Figures of the CPU are not what tests look at, and a GPU's are: processes of the tests share its lock.
            patch.setenv(device_locks.FOLDER, str(folder / "devices"))
        patch.setenv(template_key.VARIABLE, str(templates_folder()))
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def python_path() -> str:
    """The `PYTHONPATH` with which a child process finds all four packages, installed or not, and everything that this
    process finds.
    """
    given = os.environ.get("PYTHONPATH", "")
    return ":".join(dict.fromkeys([*map(str, PACKAGE_ROOTS), *filter(None, given.split(":"))]))


@pytest.fixture(scope="module")
def own_templates() -> Iterator[None]:
    """Workers, also those of fixtures, are children of the process that asked for them, so each process uses its own
    templates.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(template_key.VARIABLE, raising=False)
        yield


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_path: str) -> Path:
    """A state folder for this test alone, in the environment of every process that it starts."""
    for name in [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_") and name not in SHARED]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    new_cache(tmp_path / "home" / "cache")
    # A model that plays first is nothing that most tests need to wait for.
    monkeypatch.setenv("KERNEL_ASSISTANT_POLICY", "generator")
    monkeypatch.setenv("PYTHONPATH", python_path)
    return tmp_path
