"""What every test gets: a home of its own, and a skip for a resource that the machine has not got."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_ROOTS = (ROOT, ROOT / "lsp", ROOT / "tui", ROOT / "training")


# A run in the background (`nohup make test &`) inherits SIGINT as ignored, and would hand that on to every process
# whose answer to Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_gpu() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return bool(pynvml.nvmlDeviceGetCount())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
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
