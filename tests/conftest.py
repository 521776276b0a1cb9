"""What every test gets: a home of its own, a skip for a resource that the machine has not got, and quiet where it needs
quiet."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pynvml
import pytest

from tests.common.caches import new_cache
from tests.common.chain import chain_in
from tests.common.order import in_good_order
from tests.common.turns import Turns

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_ROOTS = (ROOT, ROOT / "lsp", ROOT / "tui", ROOT / "training")

#: Seconds of the clock after which slow tests that have not begun are left out, and those after which all others are,
#: counted in the summary: a run with a limit ends within it on a machine that is half as fast, too.
SLOW_UNTIL = float(os.environ.get("KERNEL_ASSISTANT_TESTS_SLOW_UNTIL") or "inf")
UNTIL = float(os.environ.get("KERNEL_ASSISTANT_TESTS_UNTIL") or "inf")
TURNS = Turns()

# A run in the background (`nohup make test &`) inherits SIGINT as ignored, and would hand that on to every process
# whose answer to Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Objects of torch and of collected tests stay: looking through them again and again was a fifth of what tests do.
gc.set_threshold(100_000)
# Before torch is loaded: threads that have nothing to do would keep a core from another test.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool | None, bool | None]:
    """Outside the timeout of a test: it does not count that one waits for its turn."""
    with TURNS.of(item, nextitem):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of the test is made."""
    if time.time() > SLOW_UNTIL and item.get_closest_marker("slow"):
        pytest.skip("slow, and no time was left")
    if time.time() > UNTIL:
        pytest.skip("no time was left")


def pytest_sessionfinish() -> None:
    TURNS.finish()


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where skipped tests are not listed one by one: how many for which reason."""
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
    """Before pytest-xdist reads of which group a test is."""
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
    """Keep jobs, caches and sockets of the tests away from the user's, in a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="ka-"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONFIG", "CACHE", "DATA", "STATE", "RUNTIME"):
            home = folder / name.lower()
            home.mkdir(mode=0o700)
            patch.setenv(f"XDG_{name}_HOME" if name != "RUNTIME" else "XDG_RUNTIME_DIR", str(home))
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def python_path() -> str:
    """`PYTHONPATH` under which a child process finds all four packages, installed or not."""
    return ":".join(map(str, PACKAGE_ROOTS))


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory, python_path: str) -> Path:
    """The folder of a run of the recipe `smoke`, one for all processes of the tests; not to be changed."""
    base = tmp_path_factory.getbasetemp()
    return chain_in((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "smoke", python_path)


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_path: str) -> Path:
    """A state folder for this test alone, in the environment of every process that it starts."""
    for name in [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    new_cache(tmp_path / "home" / "cache")
    # A model that plays first is nothing that most tests need to wait for.
    monkeypatch.setenv("KERNEL_ASSISTANT_POLICY", "generator")
    monkeypatch.setenv("PYTHONPATH", python_path)
    return tmp_path
